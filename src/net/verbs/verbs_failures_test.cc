// What goes wrong with adapters and lanes, on demand, over the libibverbs of tests/fakes/verbs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/verbs/verbs_testing.h"

namespace tutti::net::verbs {
namespace {

using testing::HasSubstr;

// ---- failures -----------------------------------------------------------------------------------

TEST_F(Verbs, NamesTheCallThatFails) {
  machine_.usual();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"cq", "ibv_create_cq of mlx5_0:1: Cannot allocate memory (12)"},
      {"qp", "ibv_create_qp of mlx5_0:1: Cannot allocate memory (12)"},
      {"reg", "ulimit -l"},
      {"rtr", "ibv_modify_qp to RTR of mlx5_0:1 (GID 0: fe80::5) towards fe80::5 (LID 5)"},
      {"rts", "ibv_modify_qp to RTS of mlx5_0:1"}};
  for (const auto& [call, message] : cases) {
    order("");
    const auto fabric = openFabric();
    ASSERT_TRUE(fabric.ok());
    order("fail " + call);
    EXPECT_THAT(std::string(connect(*fabric.value()).takeStatus().message()), HasSubstr(message));
  }
  order("");
  options_.partitionKeyIndex = 9;
  const auto fabric = openFabric();
  EXPECT_THAT(std::string(connect(*fabric.value()).takeStatus().message()),
              HasSubstr("ibv_modify_qp to INIT of mlx5_0:1 (NCCL_IB_PKEY=9)"));
}

TEST_F(Verbs, AMemoryThatCannotBeRegisteredLeavesNothingBehind) {
  machine_.usual();
  connectUsual();
  std::vector<std::byte> bytes(64);
  order("fail reg 2");  // with the second port's adapter
  EXPECT_THAT(std::string(lanes_.sender->enroll(bytes).status().message()),
              HasSubstr("bytes for mlx5_1: Cannot allocate memory"));
  order("");
  const auto memory = lanes_.sender->enroll(bytes);
  ASSERT_TRUE(memory.ok());
  lanes_.sender->release(memory.value());
}

TEST_F(Verbs, ARegistrationThatFailsForAnotherReasonBlamesNoLimit) {
  machine_.usual();
  connectUsual();
  std::vector<std::byte> bytes(64);
  order("fail limit");
  const std::string text(lanes_.sender->enroll(bytes).status().message());
  EXPECT_THAT(text, HasSubstr("bytes for mlx5_0: Bad address (14)"));
  EXPECT_THAT(text, testing::Not(HasSubstr("ulimit")));
}

TEST_F(Verbs, AQueueThatCannotBePolledEndsTheLane) {
  machine_.usual();
  connectUsual();
  order("fail poll");
  EXPECT_EQ(sendUntilItFails().message(), "ibv_poll_cq of mlx5_0:1: Input/output error (5)");
}

// What comes from the other side is looked at before it is used.
TEST_F(Verbs, WhatCannotBeTrueEndsTheLane) {
  machine_.usual();
  options_.adaptiveRouting = 0;  // a request a piece
  for (const auto& [what, message] :
       {std::pair{"lie 1", "a lane's receiver credits message 65 where 1 was to come"},
        std::pair{"lie 2", "a lane's sender says it wrote 2147483647 bytes, into 5000"},
        std::pair{"twice 2", "a completion for message 0 of a lane, which is not under way"}}) {
    lanes_ = {};
    order("");
    connectUsual();
    order(what);
    EXPECT_EQ(sendUntilItFails().message(), message);
  }
}

TEST_F(Verbs, NamesTheRequestThatFails) {
  machine_.usual();
  for (const auto& [what, message] :
       {std::pair{"fail send 3", "ibv_post_send of mlx5_0:1: Invalid argument (22)"},
        std::pair{"fail recv 3", "ibv_post_recv of mlx5_0:1: Cannot allocate memory (12)"}}) {
    lanes_ = {};
    order("");
    connectUsual();
    order(what);
    EXPECT_THAT(std::string(sendUntilItFails().message()), HasSubstr(message));
  }
}

struct Ending {
  int status;
  const char* name;
  Code code;
  const char* hint;
};

TEST_F(Verbs, ExplainsCompletionsThatFail) {
  machine_.usual();
  for (const Ending& ending :
       {Ending{12, "transport retry counter exceeded", Code::kRemoteError, "NCCL_IB_GID_INDEX"},
        Ending{13, "RNR retry counter exceeded", Code::kRemoteError, "posted no receive"},
        Ending{10, "remote access error", Code::kRemoteError, "no longer registered"},
        Ending{4, "local protection error", Code::kSystemError, "this side's memory"},
        Ending{5, "Work Request Flushed Error", Code::kSystemError, "had ended before"},
        Ending{21, "another status", Code::kSystemError, "dmesg"}}) {
    lanes_ = {};
    order("");
    connectUsual();
    order(fmt::format("complete 20 {}", ending.status));
    const Status status = sendUntilItFails();
    const std::string text(status.message());
    EXPECT_EQ(status.code(), ending.code) << text;
    EXPECT_THAT(text, HasSubstr(fmt::format("{} (status {}, vendor's code 0x81) on queue pair ",
                                            ending.name, ending.status)));
    EXPECT_THAT(text, HasSubstr(ending.hint));
    EXPECT_THAT(text, testing::ContainsRegex("^mlx5_[01]:1: .*towards [0-9]+ at fe80::[56] "));
  }
}

TEST_F(Verbs, WhatASenderSaidBeforeItLeftIsReceived) {
  machine_.usual();
  connectUsual();
  constexpr size_t kCount = 8;
  std::vector<std::byte> out(64, std::byte{3}), in(64 * 2 * kCount);
  const auto outMemory = lanes_.sender->enroll(out).value();
  const auto inMemory = lanes_.receiver->enroll(in).value();
  std::array<Lane::Request, kCount> receives;
  for (size_t i = 0; i < kCount; ++i) {
    receives[i] = post(*lanes_.receiver, std::span(in).subspan(64 * i, 64), inMemory).value();
    const auto send = post(*lanes_.sender, out, outMemory);
    ASSERT_EQ(await(*lanes_.sender, send.value()).value(), 64u);
  }
  lanes_.sender->release(outMemory);
  lanes_.sender.reset();
  // A credit that nobody is there for: its failure is known before the messages are looked at.
  const auto extra =
      post(*lanes_.receiver, std::span(in).subspan(64 * kCount, 64), inMemory).value();
  const std::string trouble(await(*lanes_.receiver, extra).takeStatus().message());
  EXPECT_THAT(trouble, HasSubstr("the peer's adapter does not answer"));
  for (const Lane::Request& receive : receives)
    EXPECT_EQ(await(*lanes_.receiver, receive).value(), 64u);
  EXPECT_FALSE(lanes_.receiver->post(in, inMemory).ok());
  lanes_.receiver->release(inMemory);
}

TEST_F(Verbs, AnAdapterWithoutEventsIsAnError) {
  machine_.usual();
  order("fail events");
  EXPECT_EQ(openFabric().status().message(),
            "fcntl of the events of mlx5_0: Bad file descriptor (9)");
}

// ---- events -------------------------------------------------------------------------------------

TEST_F(Verbs, AnAdapterOrQueuePairThatFailsEndsTheLane) {
  machine_.usual();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"device-fatal", "failed or was removed (local catastrophic error)"},
      {"gone", "was taken away: ibv_get_async_event of mlx5_0: Input/output error (5)"},
      {"qp-fatal", "a queue pair of mlx5_0:1 failed: local work queue catastrophic error"},
      {"cq-error", "a queue pair of mlx5_0:1 failed: CQ error"}};
  for (const auto& [kind, message] : cases) {
    lanes_ = {};
    order("");
    connectUsual();
    order("event 5 " + kind);
    EXPECT_THAT(std::string(sendUntilItFails(100'000).message()), HasSubstr(message));
  }
}

TEST_F(Verbs, APortThatStaysDownEndsTheLaneInTime) {
  machine_.usual();
  connectUsual();
  order("event 5 port-error");
  // Time passes while something is waited for only.
  std::atomic<bool> isOver{false};
  std::thread time([&] {
    while (!isOver.load()) {
      clock_.advance(std::chrono::milliseconds(1));
      std::this_thread::yield();
    }
  });
  const std::string text(sendUntilItFails(100'000).message());
  isOver = true;
  time.join();
  EXPECT_THAT(text, testing::ContainsRegex("^port mlx5_[01]:1 has been down for [0-9]+ ms, longer "
                                           "than TUTTI_TIMEOUT_MS=10000"));
}

TEST_F(Verbs, APortThatComesBackHarmsNothing) {
  machine_.usual();
  connectUsual();
  order("event 5 flap");
  EXPECT_TRUE(sendUntilItFails(200).ok());
  for (const char* kind : {"gid-change", "other"}) {
    order(std::string("event 5 ") + kind);
    EXPECT_TRUE(sendUntilItFails(200).ok()) << kind;
  }
}

TEST_F(Verbs, EventsAreOnlyToldWhereAsked) {
  machine_.usual();
  options_.endsOnEvents = false;
  connectUsual();
  for (const char* kind : {"device-fatal", "qp-fatal", "cq-error"}) {
    order(std::string("event 5 ") + kind);
    EXPECT_TRUE(sendUntilItFails(200).ok()) << kind;
  }
}

}  // namespace
}  // namespace tutti::net::verbs
