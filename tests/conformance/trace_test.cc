// Traces as a user gets them: by TUTTI_TRACE_DIR, a file a rank, read back as JSON.
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "network_ranks.h"

namespace tutti::conformance {
namespace {

using Json = nlohmann::json;

// All-reduces of three lengths, then a ring of sends and receives in one group.
TEST(TracedRanks, DISABLED_Calls) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess)
      << ncclGetLastError(nullptr);
  for (const size_t count : {1, 5000, 300000}) {
    std::vector<float> values(count, 1);
    ASSERT_EQ(ncclAllReduce(values.data(), values.data(), count, ncclFloat, ncclSum, comm, nullptr),
              ncclSuccess)
        << ncclGetLastError(comm);
    EXPECT_EQ(values.back(), static_cast<float>(self.count));
  }
  std::vector<char> sent(100000, static_cast<char>(self.rank)), got(100000);
  const int next = (self.rank + 1) % self.count;
  const int before = (self.rank + self.count - 1) % self.count;
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclSend(sent.data(), sent.size(), ncclChar, next, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclRecv(got.data(), got.size(), ncclChar, before, comm, nullptr), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(comm);
  EXPECT_EQ(got.back(), static_cast<char>(before));
  if (std::getenv("TEST_EXITS") != nullptr) std::exit(0);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

class Traces : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // By rank.
  std::map<int, Json> tracesOf(const std::string& hosts, const Settings& more = {}) const {
    Settings settings = {"TUTTI_TRACE_DIR=" + folder_};
    settings.insert(settings.end(), more.begin(), more.end());
    const Outcome outcome = run("TracedRanks.DISABLED_Calls", hosts, settings);
    EXPECT_TRUE(outcome.isGood()) << outcome.log;
    std::map<int, Json> traces;
    for (const auto& file : std::filesystem::directory_iterator(folder_)) {
      Json trace = Json::parse(std::ifstream(file.path()));
      traces.emplace(trace["otherData"]["rank"], std::move(trace));
    }
    EXPECT_EQ(traces.size(), hosts.size());
    return traces;
  }

  static size_t count(const Json& trace, const std::string& category) {
    size_t found = 0;
    for (const Json& event : trace["traceEvents"]) found += event.value("cat", "") == category;
    return found;
  }
  // Of the arrows that begin ("s") or end ("f") there.
  static std::multiset<std::string> arrows(const Json& trace, const std::string& phase) {
    std::multiset<std::string> ids;
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] == phase) ids.insert(event["id"].get<std::string>());
    }
    return ids;
  }

  const std::string folder_ = temporary("traces");
};

TEST_F(Traces, TellOfEachCallAndEachMessageBetweenHosts) {
  std::multiset<std::string> sent, received;
  for (const auto& [rank, trace] : tracesOf("abc")) {
    EXPECT_EQ(count(trace, "call"), 5u);
    EXPECT_EQ(count(trace, "run"), 5u);
    EXPECT_EQ(count(trace, "group"), 1u);
    size_t announced = 0, messages = 0;
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      EXPECT_TRUE(event["cat"] != "call" || event["args"]["ended"]) << event;
      announced += event["args"].value("messages", size_t{0});
      messages += event["name"].get<std::string>().starts_with("message ") ? 1 : 0;
    }
    EXPECT_EQ(messages, announced);
    sent.merge(arrows(trace, "s"));
    received.merge(arrows(trace, "f"));
  }
  EXPECT_FALSE(sent.empty());
  EXPECT_EQ(sent, received);
}

TEST_F(Traces, OfOneHostHaveCallsAndNoMessages) {
  for (const auto& [rank, trace] : tracesOf("aa")) {
    EXPECT_EQ(count(trace, "call"), 5u);
    EXPECT_EQ(count(trace, "message"), 0u);
  }
}

TEST_F(Traces, AreWrittenByProcessesThatExitWithoutDestroyingTheirCommunicator) {
  for (const auto& [rank, trace] : tracesOf("ab", {"TEST_EXITS=1"}))
    EXPECT_EQ(count(trace, "call"), 5u);
}

TEST_F(Traces, ForWhichThereIsNoFolderAreToldOfAndCallsGoOn) {
  const Outcome outcome =
      run("TracedRanks.DISABLED_Calls", "ab", {"TUTTI_TRACE_DIR=/nonexistent/folder"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("TUTTI_TRACE_DIR: no trace can be written to /nonexistent/folder"), 2u)
      << outcome.log;
}

}  // namespace
}  // namespace tutti::conformance
