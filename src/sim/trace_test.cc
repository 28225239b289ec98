#include "sim/trace.h"

#include <gmock/gmock.h>

#include "sim/chakra_file.h"
#include "sim/clusters_testing.h"
#include "sim/export.h"
#include "sim/trace_file.h"

namespace tutti::sim {
namespace {

using testing::HasSubstr;

constexpr Timing kTiming{.launch = Launch::kEager};

Cluster twoNodes() {
  return clusterOf(
      "nodes: [{count: 2, machine: {gpus: 4, sm: 90, nvswitch_links: 18, ports: 4, port_gbps: "
      "400}}]\nnetwork: {shape: rails, nodes_per_leaf: 2}\n");
}

Trace traceOf(const std::string& text) {
  Result<Trace> trace = parseTrace(text, "t.jsonl", 8);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  return std::move(trace).value();
}

TraceTimes timesOf(const Trace& trace) {
  Result<TraceTimes> times = simulateTrace(twoNodes(), trace, kTiming);
  EXPECT_TRUE(times.ok()) << times.status().message();
  return std::move(times).value();
}

std::string faultOf(const std::string& text) {
  Result<Trace> trace = parseTrace(text, "t.jsonl", 8);
  if (!trace.ok()) return std::string(trace.status().message());
  return std::string(simulateTrace(twoNodes(), trace.value(), kTiming).status().message());
}

double alone(const std::string& call) { return timesOf(traceOf(call)).us; }

const std::string kReduce = R"({"call":"all_reduce","count":4000000,"type":"float")";

TEST(Trace, StepsOfAStreamFollowEachOther) {
  const double call = alone(kReduce + "}\n");
  const TraceTimes times = timesOf(traceOf(R"({"compute_us":100})"
                                           "\n" +
                                           kReduce + "}\n" + R"({"compute_us":50,"name":"more"})"));
  EXPECT_DOUBLE_EQ(times.us, 150 + call);
}

TEST(Trace, StreamsOverlap) {
  const double call = alone(kReduce + "}\n");
  const Trace trace =
      traceOf(R"({"compute_us":100,"id":"a"})"
              "\n" +
              kReduce + R"(,"stream":"comm","after":["a"],"id":"c"})" + "\n" +
              R"({"compute_us":10000})" + "\n" + R"({"compute_us":7,"after":["c"]})");
  const TraceTimes times = timesOf(trace);
  EXPECT_DOUBLE_EQ(times.us, 10107);
  const RankTimes rank = timesOfAll(trace, times, 8)[3];
  EXPECT_DOUBLE_EQ(rank.computeUs, 10107);
  EXPECT_NEAR(rank.callUs, call, 1e-9);
  EXPECT_DOUBLE_EQ(rank.exposedUs, 0);
}

TEST(Trace, ACallStartsWithTheLastOfItsGroup) {
  const Trace trace = traceOf(R"({"compute_us":500,"rank":5})"
                              "\n" +
                              kReduce + "}\n");
  const TraceTimes times = timesOf(trace);
  for (size_t i = 1; i < trace.steps.size(); ++i) {
    EXPECT_DOUBLE_EQ(times.spans[i].startUs, 500);
    EXPECT_DOUBLE_EQ(times.spans[i].readyUs, trace.steps[i].rank == Rank{5} ? 500 : 0);
  }
  EXPECT_GT(timesOfAll(trace, times, 8)[0].exposedUs, 500);
}

TEST(Trace, GroupsAreWhereTheirRanksAre) {
  const std::string head = R"({"group":"node","consecutive":4})"
                           "\n"
                           R"({"group":"across","every":4})"
                           "\n";
  EXPECT_LT(2 * alone(head + kReduce + R"(,"group":"node"})"),
            alone(head + kReduce + R"(,"group":"across"})"));
  const Trace trace = traceOf(head);
  ASSERT_EQ(trace.groups.size(), 1u + 2 + 4);
  EXPECT_THAT(trace.groups[3].ranks, testing::ElementsAre(Rank{0}, Rank{4}));
}

// Each rank sends to its neighbour and receives from the other: in one batch nobody waits in a
// circle.
TEST(Trace, TransfersOfABatchRunBesideEachOther) {
  const std::string ring = R"({"call":"send","count":1000000,"offset":1,"batch":1})"
                           "\n"
                           R"({"call":"recv","count":1000000,"offset":-1,"batch":1})";
  const Trace trace = traceOf(ring);
  EXPECT_EQ(trace.steps.size(), 8u);
  EXPECT_GT(timesOf(trace).us, 0);
  std::string apart = ring;
  for (size_t at; (at = apart.find(R"(,"batch":1)")) != std::string::npos;) apart.erase(at, 10);
  EXPECT_THAT(faultOf(apart), HasSubstr("waits for ever in Send"));
}

// Two communicators of the same ranks, a call of each at the same time, on streams of their own.
std::string beside(const std::string& one, const std::string& other) {
  return one + R"(,"stream":"a"})" + "\n" + other + R"(,"stream":"b"})";
}

TEST(Trace, CallsUnderWayShareTheirLinks) {
  const std::string head = R"({"group":"p","ranks":[0,4]})"
                           "\n"
                           R"({"group":"q","ranks":[0,4]})"
                           "\n";
  const std::string call = R"({"call":"all_gather","count":100000000,"group":)";
  const double one = alone(head + call + R"("p"})");
  const Trace trace = traceOf(head + beside(call + R"("p")", call + R"("q")"));
  const TraceTimes both = timesOf(trace);
  // Nearly all of it is bytes over the same ports.
  EXPECT_NEAR(both.us / one, 2, 0.02);
  for (const TraceTimes::Span& span : both.spans) EXPECT_NEAR(span.aloneUs, one, 1e-6);
  const double most = std::ranges::max(both.linkBytes);
  EXPECT_NEAR(most / 2e8, 1, 0.1) << "a rank's block of each, and LL128's flags if any";
}

TEST(Trace, WhatLeavesALinkGivesItBack) {
  const std::string head = R"({"group":"p","ranks":[0,4]})"
                           "\n"
                           R"({"group":"q","ranks":[0,4]})"
                           "\n";
  const std::string call = R"({"call":"all_gather","type":"uint8","group":)";
  const auto sized = [&](const char* group, int64_t count) {
    return call + fmt::format(R"("{}","count":{})", group, count);
  };
  const double small = alone(head + sized("p", 100'000'000) + "}");
  const double large = alone(head + sized("q", 300'000'000) + "}");
  const TraceTimes times =
      timesOf(traceOf(head + beside(sized("p", 100'000'000), sized("q", 300'000'000))));
  EXPECT_NEAR(times.spans[0].endUs / small, 2, 0.02);
  EXPECT_NEAR(times.us / (small + large), 1, 0.01);
}

TEST(Trace, CallsOnOtherLinksDoNotSlowEachOther) {
  const std::string head = R"({"group":"node","consecutive":4})"
                           "\n";
  const std::string in = kReduce + R"(,"group":"node")";
  const double one = alone(head + in + R"(,"ranks":[0,1,2,3]})");
  EXPECT_NEAR(alone(head + in + "}"), one, 1e-9);
}

// Bytes that one rank sends to three take some three times as long as to one, whatever the links.
// So many that the call itself counts for nothing.
TEST(Trace, ARankSendsToManyNoFaster) {
  const std::string send = R"({"call":"send","rank":0,"batch":1,"count":1000000000,"peer":)";
  const std::string receive = R"({"call":"recv","count":1000000000,"peer":0,"batch":1,"rank":)";
  std::string all;
  for (const char* peer : {"1", "2", "3"}) all += send + peer + "}\n" + receive + peer + "}\n";
  // One by itself leaves some of the link, as measured.
  const double times = alone(all) / alone(send + "1}\n" + receive + "1}");
  EXPECT_GT(times, 2.5);
  EXPECT_LT(times, 3.3);
}

TEST(Trace, AListIsAsGoodAsLines) {
  const std::string lines = kReduce + "}\n" + R"({"compute_us":3})";
  const std::string list = "[" + kReduce + "},\n" + R"({"compute_us":3}])";
  EXPECT_DOUBLE_EQ(timesOf(traceOf(list)).us, timesOf(traceOf(lines)).us);
}

TEST(Trace, FaultsNameThePlace) {
  EXPECT_THAT(faultOf(""), HasSubstr("t.jsonl:1:1: nothing in it"));
  EXPECT_THAT(faultOf("{\"compute_us\":1}\n{\"call\":\"all_reduse\",\"count\":1}"),
              HasSubstr("t.jsonl:2:9: call is all_reduse, wanted one of AllReduce"));
  EXPECT_THAT(faultOf(R"({"call":"all_reduce","count":1,"group":"tp"})"),
              HasSubstr("t.jsonl:1:1: tp is no group"));
  EXPECT_THAT(faultOf(R"({"compute_us":1,"rank":8})"), HasSubstr("rank 8 is none of 0 to 7"));
  EXPECT_THAT(faultOf(R"({"compute_us":1,"after":["x"]})"), HasSubstr("done nothing called x"));
  EXPECT_THAT(faultOf(R"({"group":"g","consecutive":3})"),
              HasSubstr("8 ranks are no whole number of times 3"));
  EXPECT_THAT(
      faultOf(kReduce + R"(,"ranks":[0,1,2]})"),
      HasSubstr("t.jsonl:1: rank 0 waits for ever in AllReduce of the group world: 3 of 8"));
  EXPECT_THAT(faultOf(kReduce + ",\"ranks\":[0,1,2]}\n" +
                      R"({"call":"all_reduce","count":5,"type":"float","ranks":[3,4,5,6,7]})"),
              HasSubstr("t.jsonl:2: rank 3 calls AllReduce of 5 float in the group world, where "
                        "rank 0 calls AllReduce of 4000000 float (t.jsonl:1)"));
}

TEST(Trace, WhatIsWrittenIsReadAgain) {
  const plan::CallShape shape{
      .collective = Collective::kReduce, .op = ReduceOp::kMax, .peer = Rank{1}, .count = 77};
  const std::vector<Rank> members = {Rank{6}, Rank{2}};
  const Trace trace = traceOf(
      formatTraceGroup("a \"name\"", members) +
      formatTraceLine({.group = "a \"name\"", .rank = Rank{2}, .stream = 0xab, .shape = &shape}));
  EXPECT_EQ(trace.groups.back().ranks, members);
  ASSERT_EQ(trace.steps.size(), 1u);
  EXPECT_EQ(trace.steps[0].calls[0].shape, shape);
  EXPECT_EQ(trace.streams.back(), "0xab");
}

// The messages of a ring, exported one by one, take about as long as the ring: it is the same work
// by other means.
TEST(Trace, ReadsTheChakraFormThatWeWrite) {
  const Cluster cluster = twoNodes();
  const VirtualPlan plan = planVirtual(cluster).value();
  const Traffic traffic =
      Traffic::make(cluster, plan, {.bytes = 1 << 20}, {.algorithm = "ring"}).value();
  const FlowTable table = FlowTable::make(traffic).value();
  std::map<std::string, std::string> texts;
  ASSERT_TRUE(
      writeFlows(Format::kChakra, table, [&](std::string_view suffix, std::string_view text) {
        texts[std::string(suffix)] += text;
        return Status();
      }).ok());
  std::vector<ChakraFile> files;
  for (int32_t rank = 0; rank < 8; ++rank) {
    const std::string name = fmt::format(".{}.et", rank);
    files.push_back({.rank = Rank{rank}, .source = name, .text = texts[name]});
  }
  Result<Trace> trace = parseChakra(files, traceOf(R"({"group":"g","every":4})"));
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  uint64_t sent = 0;
  for (const TraceStep& step : trace->steps) {
    for (const TraceCall& call : step.calls)
      sent += call.shape.collective == Collective::kSend ? call.shape.count : 0;
  }
  EXPECT_EQ(sent, uint64_t{14} << 20);  // 2 (n - 1) / n of it by each of 8 ranks
  EXPECT_GT(timesOf(trace.value()).us, 0);
  std::string& broken = texts[".3.et"];
  broken.resize(broken.size() - 5);
  files[3].text = broken;
  EXPECT_THAT(
      std::string(parseChakra(files, traceOf(R"({"group":"g","every":4})")).status().message()),
      HasSubstr(".3.et: byte "));
}

}  // namespace
}  // namespace tutti::sim
