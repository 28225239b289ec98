#include "plan/tuning.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "plan/device_constants.h"

namespace tutti::plan {
namespace {

using testing::HasSubstr;

Tuning tuningOf() {
  const Origin origin{
      .machine = "a machine with spaces", .date = "2026-11-21", .how = "tutti tune -o file"};
  return {.cpu =
              CpuConstants{
                  .origin = origin,
                  .cpuCount = 4,
                  .prices = {{Collective::kAllReduce, {}, "ring", {.3, .15, .03, .06, 250, 90, 45}},
                             {Collective::kAllReduce, {true, true}, "ring", {1, 2, 3, 4, 5, 6}},
                             {Collective::kAllReduce, {true, false}, "ring", {2, 2, 3, 4, 5, 6}},
                             {Collective::kReduce, {true, true}, "ring", {1, 2, 3, 4, 5, 6}}}},
          .sockets = SocketConstants{.origin = origin,
                                     .us = {0, 0, 0, 0, 0, 0, 0, 20, 5, 4, 400, 30},
                                     .wireGbPerSecond = 2.5},
          .gpu = GpuConstants{.origin = origin,
                              .eager = {{{1.5, 0}, {0, 10.25, 2.5}}},
                              .calls = {{.system = System::kNccl,
                                         .collective = Collective::kBroadcast,
                                         .algorithm = "ring",
                                         .protocol = graph::Protocol::kLl128,
                                         .rankCount = 4,
                                         .fixedUs = 1,
                                         .hopUs = .5,
                                         .gbPerSecond = 300},
                                        {.system = System::kTutti,
                                         .collective = Collective::kAllReduce,
                                         .algorithm = "oneshot",
                                         .protocol = graph::Protocol::kLl,
                                         .rankCount = 2,
                                         .fixedUs = 3,
                                         .hopUs = .5,
                                         .gbPerSecond = 20,
                                         .uptoBytes = 65540,
                                         .tailGbPerSecond = 170}}},
          .simulator = SimulatorConstants{.origin = origin,
                                          .cpuCall = {.fixedUs = 1, .hopUs = 2, .gbPerSecond = 3},
                                          .cpuNetworkHopUs = 4,
                                          .gpuNetworkHopUs = {5, 6, 7}}};
}

TEST(Tuning, IsReadAsItWasWritten) {
  Result<Tuning> read = parseTuning(writeTuning(tuningOf()), "file");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read.value() == tuningOf()) << writeTuning(read.value());
  const auto& pat = *schedule::findAlgorithm(Collective::kAllReduce, "pat");
  EXPECT_EQ(read->cpu->pricesOf(pat, {}), nullptr);
}

TEST(Tuning, TakesPricesOfCrowdedRanksForOthersOnlyWhereTheyHaveNone) {
  const CpuConstants cpu = *tuningOf().cpu;
  const auto firstPrice = [&](Collective collective, const RankKind& kind) {
    const CostPrices* found = cpu.pricesOf(*schedule::findAlgorithm(collective, "ring"), kind);
    return found == nullptr ? -1 : found->us[0];
  };
  EXPECT_EQ(firstPrice(Collective::kAllReduce, {true, true}), 1);
  EXPECT_EQ(firstPrice(Collective::kAllReduce, {true, false}), 2);
  EXPECT_EQ(firstPrice(Collective::kAllReduce, {false, true}), .3);
  EXPECT_EQ(firstPrice(Collective::kReduce, {true, false}), 1);
  EXPECT_EQ(firstPrice(Collective::kReduce, {false, false}), -1);
}

TEST(Tuning, MayHaveAnyOfItsDevices) {
  Tuning some = tuningOf();
  some.cpu.reset();
  some.simulator.reset();
  EXPECT_TRUE(parseTuning(writeTuning(some), "file").value() == some);
}

std::string refusal(const std::string& text) {
  const Result<Tuning> read = parseTuning(text, "tuning.txt");
  EXPECT_FALSE(read.ok()) << text;
  return read.ok() ? "" : std::string(read.status().message());
}

// Written before links and what is folded had prices.
TEST(Tuning, IsReadWithoutTheNetworksNewerPrices) {
  const std::string first = "tutti tuning 6\ndevice sockets\nprices hop 20 message 5 mb 400";
  const Tuning known = parseTuning(first + "\n", "file").value();
  EXPECT_EQ(known.sockets->us, (CostTerms{0, 0, 0, 0, 0, 0, 0, 20, 5, 0, 400}));
  EXPECT_FALSE(parseTuning(first + " folded_mb 3\n", "file").ok());
}

TEST(Tuning, IsRefusedWhereItGoesWrong) {
  EXPECT_THAT(refusal("<xml/>"), HasSubstr("tuning.txt:1: wanted \"tutti tuning 6\""));
  EXPECT_THAT(refusal(""), HasSubstr("no device"));
  const std::string first = "tutti tuning 6\n";
  EXPECT_THAT(refusal(first + "cpus 2\n"), HasSubstr("tuning.txt:2: \"cpus\": wanted device"));
  EXPECT_THAT(refusal(first + "device fpga\n"), HasSubstr("\"fpga\": wanted cpu, sockets"));
  EXPECT_THAT(refusal(first + "device cpu\ndevice cpu\n"), HasSubstr("each once"));
  EXPECT_THAT(refusal(first + "device cpu\n"), HasSubstr("device cpu has no prices"));
  EXPECT_THAT(refusal(first + "device gpu\n"), HasSubstr("device gpu has no calls"));
  const std::string cpu = first + "device cpu\n";
  EXPECT_THAT(refusal(cpu + "colour blue\n"), HasSubstr("tuning.txt:3: device cpu has no \"col"));
  EXPECT_THAT(refusal(cpu + "launch tutti\n"), HasSubstr("device cpu has no \"launch\""));
  EXPECT_THAT(refusal(cpu + "cpus 0\n"), HasSubstr("cpus: wanted 1 to"));
  EXPECT_THAT(refusal(cpu + "prices Sing threads\n"), HasSubstr("\"Sing\" is no collective"));
  EXPECT_THAT(refusal(cpu + "prices AllReduce cores\n"), HasSubstr("wanted threads or processes"));
  EXPECT_THAT(refusal(cpu + "prices AllReduce threads sun"),
              HasSubstr("AllReduce has no algorithm \"sun\""));
  for (const char* figure : {"-1", "nan", "1e300", "x", ""})
    EXPECT_THAT(refusal(cpu + "prices AllReduce threads ring call " + figure),
                HasSubstr("wanted call"));
  EXPECT_THAT(refusal(cpu + "prices AllReduce threads ring call 1 hop 2"),
              HasSubstr("wanted line"));
  std::string twice = writeTuning({.cpu = tuningOf().cpu});
  twice += twice.substr(twice.find("prices A"));
  EXPECT_THAT(refusal(twice), HasSubstr("has prices already"));
  EXPECT_THAT(refusal(first + "device sockets\nprices hop 1 message x"),
              HasSubstr("wanted message"));
  const std::string gpu = first + "device gpu\n";
  EXPECT_THAT(refusal(gpu + "launch rccl"), HasSubstr("\"rccl\": wanted tutti or nccl"));
  EXPECT_THAT(refusal(gpu + "launch nccl more_us 1 least_us 10 peer_us x"),
              HasSubstr("wanted peer_us"));
  EXPECT_THAT(refusal(gpu + "call nccl AllReduce ring LL256"), HasSubstr("\"LL256\": wanted LL"));
  EXPECT_THAT(refusal(gpu + "call nccl AllReduce ring LL fixed_us 1"), HasSubstr("wanted ranks"));
  EXPECT_THAT(refusal(gpu + "call nccl AllReduce ring LL ranks 1 fixed_us 1 hop_us 1 gb_s 1"),
              HasSubstr("ranks: wanted 2 or more"));
  EXPECT_THAT(refusal(gpu + "call nccl AllReduce ring LL ranks 2 fixed_us 1 hop_us 1 gb_s 0"),
              HasSubstr("gb_s: wanted more than 0"));
  const std::string call = gpu + "call nccl AllReduce ring LL ranks 2 fixed_us 1 hop_us 1 gb_s 1 ";
  EXPECT_THAT(refusal(call + "downto_bytes 1"), HasSubstr("wanted upto_bytes and a number"));
  EXPECT_THAT(refusal(call + "upto_bytes 8"), HasSubstr("wanted tail_gb_s and a number"));
  EXPECT_THAT(refusal(call + "upto_bytes 8 tail_gb_s 0"), HasSubstr("wanted more than 0"));
}

TEST(CallPrices, ChargeBytesBeyondTheMeasuredOnesByTheTail) {
  const CallPrices endless{.gbPerSecond = 10};
  EXPECT_DOUBLE_EQ(endless.bytesUs(1e6), 100);
  const CallPrices prices{.gbPerSecond = 10, .uptoBytes = 1e5, .tailGbPerSecond = 100};
  EXPECT_DOUBLE_EQ(prices.bytesUs(1e5), 10);
  EXPECT_DOUBLE_EQ(prices.bytesUs(1e6), 10 + 9);
}

TEST(DeviceConstants, SayForEachKindWhereTheyAreFrom) {
  Result<Tuning> known = parseTuning(deviceConstantsText(), "device_constants.txt");
  ASSERT_TRUE(known.ok()) << known.status().message();
  ASSERT_TRUE(known->cpu && known->sockets && known->gpu && known->simulator);
  for (const Origin* each : {&known->cpu->origin, &known->sockets->origin, &known->gpu->origin,
                             &known->simulator->origin}) {
    EXPECT_FALSE(each->machine.empty());
    EXPECT_EQ(each->date.size(), std::string_view("2026-11-21").size());
    EXPECT_FALSE(each->how.empty());
  }
  EXPECT_GT(builtInSimulator().cpuNetworkHopUs, 0);
}

TEST(DeviceConstants, HaveThePricesOfEveryAlgorithmOfWhichOneIsChosen) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto algorithms = schedule::algorithms(static_cast<Collective>(i));
    if (algorithms.size() < 2) continue;
    for (const schedule::Algorithm& algorithm : algorithms) {
      for (const RankKind kind : {RankKind{false, false}, RankKind{false, true},
                                  RankKind{true, false}, RankKind{true, true}}) {
        const CostPrices* prices = builtInCpu().pricesOf(algorithm, kind);
        ASSERT_NE(prices, nullptr) << name(algorithm.collective) << ' ' << algorithm.name;
        EXPECT_EQ(prices->kind, kind) << name(algorithm.collective) << ' ' << algorithm.name;
      }
    }
  }
}

TEST(DeviceConstants, HaveThePricesOfCrowdedRanksOnAmdsProcessorsToo) {
  EXPECT_FALSE(builtInCrowdedAmd().origin.how.empty());
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter}) {
    for (const schedule::Algorithm& algorithm : schedule::algorithms(collective)) {
      for (const bool readsPeers : {false, true}) {
        const RankKind kind{.readsPeers = readsPeers, .isCrowded = true};
        const CostPrices* prices = builtInCrowdedAmd().pricesOf(algorithm, kind);
        ASSERT_NE(prices, nullptr) << name(collective) << ' ' << algorithm.name;
        EXPECT_EQ(prices->kind, kind) << name(collective) << ' ' << algorithm.name;
      }
    }
  }
}

TEST(DeviceConstants, HaveAGpuCallOfEachSystemAndProtocol) {
  for (const System system : {System::kTutti, System::kNccl}) {
    for (const auto protocol :
         {graph::Protocol::kLl, graph::Protocol::kLl128, graph::Protocol::kSimple})
      EXPECT_TRUE(std::ranges::any_of(builtInGpu().calls, [&](const CallPrices& each) {
        return each.system == system && each.protocol == protocol &&
               each.collective == Collective::kAllReduce;
      }));
  }
}

}  // namespace
}  // namespace tutti::plan
