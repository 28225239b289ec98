// Adapters and lanes over the libibverbs of tests/fakes/verbs.
#include "net/verbs/verbs_fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "net/verbs/verbs_testing.h"

namespace tutti::net::verbs {
namespace {

using testing::HasSubstr;

// ---- adapters -----------------------------------------------------------------------------------

TEST_F(Verbs, MergesThePortsOfACardAndTellsSpeeds) {
  machine_.usual();
  const auto fabric = openFabric();
  ASSERT_TRUE(fabric.ok()) << fabric.status().message();
  EXPECT_EQ(fabric.value()->caps().name, "IB");
  EXPECT_EQ(fabric.value()->caps().deviceCount, 2u);
  EXPECT_EQ(fabric.value()->caps().description,
            "2 adapters: mlx5_0:1 (200 Gb/s, InfiniBand) + mlx5_1:1 (200 Gb/s, InfiniBand), "
            "mlx5_2:1 (200 Gb/s, InfiniBand)");
}

TEST_F(Verbs, MergesNothingWhereAsked) {
  machine_.usual();
  options_.mergesPorts = false;
  EXPECT_EQ(openFabric().value()->caps().deviceCount, 3u);
}

TEST_F(Verbs, TakesThePortsThatAreNamed) {
  machine_.usual();
  options_.adapters = "=mlx5_2:1";
  EXPECT_EQ(openFabric().value()->caps().description, "1 adapter: mlx5_2:1 (200 Gb/s, InfiniBand)");
}

TEST_F(Verbs, TellsOfEachPortWhyItIsNotUsed) {
  machine_.device("mlx5_0", "0000:17:00.0")
      .port("down ib 64 2 5")
      .port(std::string("active eth 32 2 0\ngid 3 v1 fe80::1"))
      .device("mlx5_9", "0000:18:00.0")
      .port(kInfiniBand + std::string("9"));
  options_.adapters = "^mlx5_9";
  options_.roceVersion = 2;
  const std::string why(openFabric().status().message());
  EXPECT_THAT(why, HasSubstr("mlx5_0:1 is down"));
  EXPECT_THAT(why, HasSubstr("mlx5_0:2: no entry of its GID table fits"));
  EXPECT_THAT(why, HasSubstr("3: fe80::1 (RoCE v1)"));
  EXPECT_THAT(why, HasSubstr("mlx5_9:1: NCCL_IB_HCA=^mlx5_9"));
}

TEST_F(Verbs, WithoutAdaptersOrLibraryIsNoNetwork) {
  EXPECT_EQ(openFabric().status().message(), "InfiniBand has no port to use: no adapter");
  options_.library = "libnowhere.so.1";
  EXPECT_THAT(std::string(openFabric().status().message()), HasSubstr("no libibverbs: libnowhere"));
  options_.library = "libm.so.6";
  EXPECT_THAT(std::string(openFabric().status().message()), HasSubstr("libm.so.6 has no ibv_"));
}

TEST_F(Verbs, AnAdapterOfAnotherKindIsLeftOut) {
  machine_.usual().device("iw0", "0000:5e:00.0", 0, "iwarp").port(kInfiniBand + std::string("8"));
  options_.adapters = "iw0";
  EXPECT_THAT(std::string(openFabric().status().message()),
              HasSubstr("iw0 is neither InfiniBand nor RoCE"));
}

TEST_F(Verbs, AListThatIsNotGivenIsAnError) {
  machine_.usual();
  order("fail list");
  EXPECT_EQ(openFabric().status().message(),
            "ibv_get_device_list of this host: Function not implemented (38)");
}

TEST_F(Verbs, PortsOfOldLibrariesAndForksThatCannotBePreparedAreNoObstacle) {
  machine_.usual();
  for (const char* what : {"old", "fail fork"}) {
    order(what);
    EXPECT_EQ(openFabric().value()->caps().deviceCount, 2u) << what;
  }
}

TEST_F(Verbs, ASettingThatCannotBeReadIsRefused) {
  machine_.usual();
  options_.adapters = "mlx5_0:x";
  EXPECT_EQ(openFabric().status().code(), Code::kInvalidUsage);
}

TEST_F(Verbs, AnAdapterThatDoesNotOpenIsLeftOut) {
  machine_.usual();
  for (const char* what : {"fail open 1", "fail query 1", "fail pd 1", "fail port 1"}) {
    order(what);
    const auto fabric = openFabric();
    ASSERT_TRUE(fabric.ok()) << what;
    EXPECT_THAT(fabric.value()->caps().description, testing::Not(HasSubstr("mlx5_0")));
  }
}

// ---- lanes --------------------------------------------------------------------------------------

struct Shape {
  const char* name;
  uint32_t queuePairs = 1;
  bool splitsData = false;
  int adaptiveRouting = -1;
  bool isRoce = false;
  int mostInline = 64;
};

class VerbsLanes : public Verbs, public testing::WithParamInterface<Shape> {};

INSTANTIATE_TEST_SUITE_P(Shapes, VerbsLanes,
                         testing::Values(Shape{"plain"}, Shape{"fourPairs", 4},
                                         Shape{"split", 3, true}, Shape{"ordered", 2, false, 0},
                                         Shape{"adaptive", 2, true, 1},
                                         Shape{"roce", 1, false, -1, true},
                                         Shape{"withoutInline", 2, true, 1, true, 0}),
                         [](const auto& shape) { return std::string(shape.param.name); });

TEST_P(VerbsLanes, MoveMessagesOfAllSizesInOrder) {
  const Shape& shape = GetParam();
  for (const char* address : {"0000:17:00.0", "0000:17:00.1"}) {
    machine_.device(fmt::format("mlx5_{}", address[11]), address, shape.mostInline);
    machine_.port(shape.isRoce ? fmt::format("{}gid 3 v2 ::ffff:10.0.{}.7", kRoce, address[11])
                               : fmt::format("{}1{}\ngid 0 ib fe80::{}", kInfiniBand, address[11],
                                             address[11] + 1));
  }
  options_.queuePairs = shape.queuePairs;
  options_.splitsData = shape.splitsData;
  options_.adaptiveRouting = shape.adaptiveRouting;
  connectUsual();
  std::vector<std::byte> out(400'000), in(400'000);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 7 + i / 251);
  const auto outMemory = lanes_.sender->enroll(out).value();
  const auto inMemory = lanes_.receiver->enroll(in).value();
  SeededRng rng(7);
  for (int round = 0; round < 30; ++round) {
    std::ranges::fill(in, std::byte{0});
    std::array<size_t, 5> sizes{};
    std::array<Lane::Request, 5> sends, receives;
    size_t begin = 0;
    std::array<size_t, 5> begins{};
    for (size_t i = 0; i < sizes.size(); ++i) {
      sizes[i] = rng.below(3) == 0 ? rng.below(70) : rng.below(70'000);
      begins[i] = begin;
      receives[i] =
          post(*lanes_.receiver, std::span(in).subspan(begin, sizes[i] + 5), inMemory).value();
      sends[i] = post(*lanes_.sender, std::span(out).subspan(begin, sizes[i]), outMemory).value();
      begin += sizes[i] + 5;
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto sent = await(*lanes_.sender, sends[i]);
      ASSERT_TRUE(sent.ok()) << sent.status().message();
      const auto received = await(*lanes_.receiver, receives[i]);
      ASSERT_TRUE(received.ok()) << received.status().message();
      EXPECT_EQ(received.value(), sizes[i]);
      EXPECT_TRUE(std::equal(in.begin() + static_cast<long>(begins[i]),
                             in.begin() + static_cast<long>(begins[i] + sizes[i]),
                             out.begin() + static_cast<long>(begins[i])));
      EXPECT_EQ(in[begins[i] + sizes[i]], std::byte{0});
    }
  }
  lanes_.sender->release(outMemory);
  lanes_.receiver->release(inMemory);
}

// "service level, traffic class" of both ends, sorted.
class VerbsMarks : public Verbs {
 protected:
  ~VerbsMarks() override { ::unsetenv("FAKE_VERBS_REPORT"); }
  std::vector<std::string> marksOf(int trafficClass) {
    const std::string report = testing::TempDir() + fmt::format("tutti_marks_{}", ::getpid());
    ::setenv("FAKE_VERBS_REPORT", report.c_str(), 1);
    const auto fabric = openFabric();
    EXPECT_TRUE(connect(*fabric.value(), 0, 0, trafficClass).ok());
    std::vector<std::string> lines;
    std::ifstream file(report);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    std::filesystem::remove(report);
    std::ranges::sort(lines);
    return lines;
  }
};

TEST_F(VerbsMarks, OnRoceAreTheTrafficClassThatASettingOrElseTheConfigSays) {
  using Lines = std::vector<std::string>;
  machine_.device("mlx5_0", "0000:17:00.0").port(kRoce + std::string("gid 3 v2 ::ffff:10.0.0.7"));
  EXPECT_EQ(marksOf(kNoTrafficClass), (Lines{"0 0", "0 0"}));
  EXPECT_EQ(marksOf(8), (Lines{"0 8", "0 8"}));
  options_.controlTrafficClass = 16;
  EXPECT_EQ(marksOf(106), (Lines{"0 106", "0 16"}));
  options_.trafficClass = 0;
  EXPECT_EQ(marksOf(106), (Lines{"0 0", "0 16"}));
  options_.serviceLevel = 3;
  EXPECT_EQ(marksOf(106), (Lines{"3 0", "3 16"}));
}

TEST_F(VerbsMarks, OnInfiniBandAreTheServiceLevel) {
  using Lines = std::vector<std::string>;
  machine_.usual();
  EXPECT_EQ(marksOf(5), (Lines(4, "5 0")));
  EXPECT_EQ(marksOf(16), (Lines(4, "0 0")));  // there are no more than 15
  options_.serviceLevel = 3;
  EXPECT_EQ(marksOf(5), (Lines(4, "3 0")));
}

TEST_F(VerbsMarks, OfNoTrafficClassAreAnError) {
  machine_.usual();
  const auto fabric = openFabric();
  EXPECT_EQ(connect(*fabric.value(), 0, 0, 256).status().message(),
            "config.trafficClass is 256: on InfiniBand and RoCE the most is 255");
}

TEST_F(Verbs, ConnectsEndsWithDifferentNumbersOfPorts) {
  machine_.usual();
  const auto fabric = openFabric();
  ASSERT_TRUE(fabric.ok());
  for (const auto& [to, from] : {std::pair{0, 1}, std::pair{1, 0}}) {
    auto lanes = connect(*fabric.value(), static_cast<size_t>(to), static_cast<size_t>(from));
    ASSERT_TRUE(lanes.ok()) << lanes.status().message();
    lanes_ = std::move(lanes).value();
    EXPECT_TRUE(sendUntilItFails().ok());
  }
  lanes_ = {};
}

TEST_F(Verbs, SendsFromMemoryThatIsWrittenInOrder) {
  machine_.usual();
  options_.ordersRelaxed = false;
  connectUsual();
  EXPECT_TRUE(sendUntilItFails().ok());
}

TEST_F(Verbs, TakesNothingBeforeAReceiveIsPostedAndAtMostAWindow) {
  machine_.usual();
  connectUsual();
  std::vector<std::byte> bytes(64);
  const auto outMemory = lanes_.sender->enroll(bytes).value();
  EXPECT_FALSE(lanes_.sender->post(bytes, outMemory).value());
  const auto inMemory = lanes_.receiver->enroll(bytes).value();
  size_t count = 0;
  while (lanes_.receiver->post(bytes, inMemory).value()) ++count;
  EXPECT_EQ(count, kMaxRequests);
  lanes_.sender->release(outMemory);
  lanes_.receiver->release(inMemory);
}

TEST_F(Verbs, RefusesAMessageThatIsLongerThanItsReceive) {
  machine_.usual();
  connectUsual();
  std::vector<std::byte> bytes(64);
  const auto outMemory = lanes_.sender->enroll(bytes).value();
  const auto inMemory = lanes_.receiver->enroll(bytes).value();
  ASSERT_TRUE(lanes_.receiver->post(std::span(bytes).first(10), inMemory).value());
  const auto status = post(*lanes_.sender, bytes, outMemory).takeStatus();
  EXPECT_EQ(status.message(), "a lane's receiver has room for 10 bytes of a message of 64");
  lanes_.sender->release(outMemory);
  lanes_.receiver->release(inMemory);
}

TEST_F(Verbs, RefusesTermsThatNoLaneHas) {
  machine_.usual();
  const auto fabric = openFabric();
  ASSERT_TRUE(fabric.ok());
  EXPECT_THAT(std::string(fabric.value()->dial({.device = 0}, LaneHandle{}).status().message()),
              HasSubstr("which no lane can have"));
  const auto listener = fabric.value()->listen({.device = 0}).value();
  listener->hear(LaneHandle{});
  EXPECT_THAT(std::string(listener->accept().status().message()),
              HasSubstr("which no lane can have"));
}

TEST_F(Verbs, RefusesAnAnswerOfAnotherWidth) {
  machine_.usual();
  const auto narrow = openFabric().value();
  options_.queuePairs = 4;
  const auto wide = openFabric().value();
  const auto listener = narrow->listen({.device = 0}).value();
  const auto other = wide->listen({.device = 0}).value();
  listener->hear(wide->dial({.device = 0}, other->handle()).value()->answer());
  EXPECT_EQ(listener->accept().status().message(),
            "a lane has 2 queue pairs in stripes of 2 here and 8 of 2 there");
}

TEST_F(Verbs, RefusesToConnectInfiniBandToRoce) {
  machine_.usual().device("rocep1", "0000:5e:00.0").port(kRoce);
  const auto fabric = openFabric();
  ASSERT_TRUE(fabric.ok());
  EXPECT_THAT(std::string(connect(*fabric.value(), 2, 0).takeStatus().message()),
              HasSubstr("mlx5_0:1 is InfiniBand, the peer's port is not"));
}

}  // namespace
}  // namespace tutti::net::verbs
