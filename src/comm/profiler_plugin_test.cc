#include "comm/profiler_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::comm {
namespace {

using observe::EventKind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string pathOf(int version) {
  return fmt::format("{}/libnccl-profiler-fake{}.so", TUTTI_FAKE_PROFILERS, version);
}

// Every version of the interface, by the plug-in of tests/fakes/profiler.c; FAKE_PROFILER says what
// it does, and what it is told it writes to a file.
class ProfilerPlugin : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { ::setenv("FAKE_PROFILER_FILE", stem_.c_str(), 1); }
  void TearDown() override {
    ::unsetenv("FAKE_PROFILER");
    ::unsetenv("FAKE_PROFILER_FILE");
    std::filesystem::remove(stem_ + ".2");
  }
  static void order(const char* what) { ASSERT_EQ(::setenv("FAKE_PROFILER", what, 1), 0); }
  static Result<std::unique_ptr<observe::ProfilerSink>> open() {
    TUTTI_TRY_ASSIGN(const PluginLibrary library, loadProfiler(pathOf(GetParam())));
    EXPECT_EQ(library.version, GetParam());
    return openProfiler(library, {.communicator = 77, .name = "job", .rank = 2, .rankCount = 3});
  }
  std::vector<std::string> told() const {
    std::vector<std::string> lines;
    std::ifstream file(stem_ + ".2");
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  const std::string stem_ = testing::TempDir() + "tutti_profiler_" + std::to_string(::getpid());
};

INSTANTIATE_TEST_SUITE_P(Versions, ProfilerPlugin, testing::Values(1, 2, 3, 4, 5),
                         [](const auto& version) { return fmt::format("v{}", version.param); });

const observe::CallNote kAllReduce = {.collective = Collective::kAllReduce,
                                      .type = DataType::kFloat32,
                                      .count = 10,
                                      .sequence = 4,
                                      .algorithm = "tree"};

// One call of one message, which it sends.
void runOneCall(observe::ProfilerSink& sink) {
  const auto group = sink.beginGroup({.callCount = 1}, Instant{1});
  const auto call = sink.beginCall(group, kAllReduce, Instant{1});
  const auto run = sink.beginRun(call, Instant{2});
  const auto transfer = sink.beginTransfer(
      call, {.peer = 1, .isSend = true, .messageCount = 1, .messageBytes = 64}, Instant{2});
  const auto message = sink.beginMessage(transfer, {.bytes = 40}, Instant{3});
  sink.messageMoved(message, 40, Instant{4});
  if (run != nullptr) sink.end(EventKind::kRun, run, Instant{5});
  sink.end(EventKind::kCall, call, Instant{5});
  sink.end(EventKind::kGroup, group, Instant{5});
  sink.end(EventKind::kMessage, message, Instant{6});
  sink.end(EventKind::kTransfer, transfer, Instant{6});
}

std::string namesOf(int version) {
  return version == 1 ? "func 4 type 7 algo 0" : "func AllReduce type ncclFloat32 algo TREE";
}
constexpr const char* kTransfer = "peer 1 send 1 steps 1 chunk 64";

// States of messages are their transfer's.
std::vector<std::string> wantedUntil3(int version) {
  const bool hasRuns = version == 3;
  const std::string run = "3", transfer = hasRuns ? "4" : "3", message = hasRuns ? "5" : "4";
  std::vector<std::string> lines = {
      "start 1 kind 1 parent 0", "start 2 kind 2 parent 1 " + namesOf(version) + " seq 0 count 10"};
  if (hasRuns) lines.push_back("start 3 kind 64 parent 2");
  for (const std::string& line :
       {"start " + transfer + " kind 8 parent 2 " + kTransfer,
        "start " + message + " kind 16 parent " + transfer + " step 0",
        "state " + transfer + " is 0 bytes 0", "state " + transfer + " is 1 bytes 0",
        "state " + transfer + " is 2 bytes 40", "state " + message + " is 9 bytes 0"})
    lines.push_back(line);
  if (hasRuns) lines.push_back("stop 3");
  for (const std::string& line :
       {std::string("stop 2"), std::string("stop 1"), "state " + transfer + " is 3 bytes 40",
        "stop " + message, "stop " + transfer, std::string("finalize")})
    lines.push_back(line);
  return lines;
}

const std::vector<std::string>& wantedOf4() {
  static const std::vector<std::string> lines = {
      "start 1 kind 1 parent 0",
      "start 2 kind 2 parent 1 " + namesOf(4) + " seq 0 count 10",
      "start 3 kind 64 parent 2",
      std::string("start 4 kind 8 parent 2 ") + kTransfer,
      "state 4 is 19 bytes 0",
      "start 5 kind 16 parent 4 step 0",
      "state 5 is 20 bytes 0",
      "state 5 is 9 bytes 40",
      "state 3 is 22 bytes 5",
      "stop 3",
      "stop 2",
      "stop 1",
      "stop 5",
      "stop 4",
      "finalize"};
  return lines;
}

const std::vector<std::string>& wantedOf5() {
  static const std::vector<std::string> lines = {
      "start 1 kind 256 parent 0 depth 1",
      "state 1 is 23 bytes 0",
      "state 1 is 24 bytes 0",
      "start 2 kind 1 parent 0",
      "start 3 kind 512 parent 1 func AllReduce",
      "start 4 kind 2 parent 3 " + namesOf(5) + " seq 0 count 10 group 2",
      "start 5 kind 64 parent 4",
      std::string("start 6 kind 8 parent 4 ") + kTransfer,
      "state 6 is 19 bytes 0",
      "start 7 kind 16 parent 6 step 0",
      "state 7 is 20 bytes 0",
      "state 7 is 9 bytes 40",
      "state 5 is 22 bytes 5",
      "stop 5",
      "stop 4",
      "stop 3",
      "stop 2",
      "stop 1",
      "stop 7",
      "stop 6",
      "finalize"};
  return lines;
}

std::vector<std::string> wantedOf(int version) {
  if (version <= 3) return wantedUntil3(version);
  return version == 4 ? wantedOf4() : wantedOf5();
}

TEST_P(ProfilerPlugin, IsToldOfEachEventWithItsParentAndStates) {
  {
    const auto sink = open();
    ASSERT_TRUE(sink.ok()) << sink.status().message();
    runOneCall(*sink.value());
  }
  EXPECT_EQ(told(), wantedOf(GetParam()));
}

TEST_P(ProfilerPlugin, GetsTheEventsAboveThoseItAsksFor) {
  order("mask 8");
  {
    const auto sink = open();
    ASSERT_TRUE(sink.ok()) << sink.status().message();
    runOneCall(*sink.value());
  }
  std::string kinds;
  for (const std::string& line : told()) {
    if (!line.starts_with("start ")) continue;
    const size_t at = line.find("kind ") + 5;
    kinds += line.substr(at, line.find(" parent") - at) + ' ';
  }
  EXPECT_EQ(kinds, GetParam() <= 4 ? "1 2 8 " : "256 1 512 2 8 ");
}

TEST_P(ProfilerPlugin, MayKeepNoEvent) {
  order("none");
  {
    const auto sink = open();
    ASSERT_TRUE(sink.ok()) << sink.status().message();
    runOneCall(*sink.value());
  }
  EXPECT_THAT(told(), ElementsAre("finalize"));
}

TEST_P(ProfilerPlugin, ThatFailsIsToldNothingMore) {
  for (const char* failure : {"fail-start", "fail-state", "fail-stop"}) {
    order(failure);
    const auto sink = open();
    ASSERT_TRUE(sink.ok()) << sink.status().message();
    runOneCall(*sink.value());
    runOneCall(*sink.value());
  }
}

TEST_P(ProfilerPlugin, ThatCannotBeginIsNamedWithWhatItReturned) {
  order("fail-init");
  const auto sink = open();
  ASSERT_FALSE(sink.ok());
  EXPECT_THAT(std::string(sink.status().message()),
              HasSubstr(fmt::format("{} (version {}): init returned 2; rank 2 does without it",
                                    pathOf(GetParam()), GetParam())));
}

TEST_P(ProfilerPlugin, IsToldOfSendsAndReceivesWithTheirPeers) {
  {
    const auto sink = open();
    ASSERT_TRUE(sink.ok()) << sink.status().message();
    const auto group = sink.value()->beginGroup({.callCount = 1, .isUsers = true}, Instant{1});
    const auto call = sink.value()->beginCall(
        group, {.collective = Collective::kRecv, .type = DataType::kInt8, .peer = 1, .count = 9},
        Instant{1});
    sink.value()->end(EventKind::kCall, call, Instant{2});
    sink.value()->end(EventKind::kGroup, group, Instant{2});
  }
  const std::string names = GetParam() == 1 ? "func 7 type 0" : "func Recv type ncclInt8";
  EXPECT_THAT(told(), testing::Contains(HasSubstr(names + " count 9 peer 1")));
}

// A rank on a GPU: its group's launch, and then the run, with the times of the GPU.
std::vector<std::string> wantedOfAGpu(int version) {
  const std::string call = namesOf(version) + " seq 0 count 10";
  if (version < 3)
    return {"start 1 kind 1 parent 0", "start 2 kind 2 parent 1 " + call, "stop 2", "stop 1",
            "finalize"};
  if (version == 3)
    return {"start 1 kind 1 parent 0",
            "start 2 kind 2 parent 1 " + call,
            "start 3 kind 64 parent 2",
            "stop 3",
            "stop 2",
            "stop 1",
            "finalize"};
  if (version == 4)
    return {"start 1 kind 1 parent 0",
            "start 2 kind 2 parent 1 " + call,
            "start 3 kind 64 parent 2",
            "state 3 is 22 bytes 7",
            "stop 3",
            "stop 2",
            "stop 1",
            "finalize"};
  return {"start 1 kind 256 parent 0 depth 1",
          "state 1 is 23 bytes 0",
          "state 1 is 24 bytes 0",
          "start 2 kind 1 parent 0",
          "start 3 kind 512 parent 1 func AllReduce",
          "start 4 kind 2 parent 3 " + call + " group 2",
          "start 5 kind 2048 parent 1",
          "stop 5",
          "start 6 kind 64 parent 4",
          "state 6 is 22 bytes 7",
          "stop 6",
          "stop 4",
          "stop 3",
          "stop 2",
          "stop 1",
          "finalize"};
}

TEST_P(ProfilerPlugin, IsToldOfLaunchesOnGpusAndTheirRuns) {
  {
    const auto sink = open();
    ASSERT_TRUE(sink.ok()) << sink.status().message();
    const auto group = sink.value()->beginGroup({.callCount = 1}, Instant{1});
    const auto call = sink.value()->beginCall(group, kAllReduce, Instant{1});
    const auto launch = sink.value()->beginLaunch(group, nullptr, Instant{2});
    if (launch != nullptr) sink.value()->end(EventKind::kLaunch, launch, Instant{3});
    const auto run = sink.value()->beginRun(call, Instant{4});
    if (run != nullptr) sink.value()->end(EventKind::kRun, run, Instant{7});
    sink.value()->end(EventKind::kCall, call, Instant{7});
    sink.value()->end(EventKind::kGroup, group, Instant{7});
    sink.value()->drop(3);
  }
  EXPECT_EQ(told(), wantedOfAGpu(GetParam()));
}

TEST(ProfilerPlugins, ThatAreNotThereAreNamed) {
  const auto library = loadProfiler("absent");
  ASSERT_FALSE(library.ok());
  EXPECT_THAT(std::string(library.status().message()), HasSubstr("libnccl-profiler-absent.so"));
  EXPECT_FALSE(loadProfiler("none").value().exists());
}

}  // namespace
}  // namespace tutti::comm
