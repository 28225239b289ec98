// Adapters, lanes and their failures over the libibverbs of tests/fakes/verbs.
#include "net/verbs/verbs_fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace tutti::net::verbs {
namespace {

using testing::HasSubstr;

constexpr const char* kInfiniBand = "active ib 64 2 ";  // 200 Gb/s
constexpr const char* kRoce = "active eth 32 2 0\ngid 0 v1 fe80::1\n";

// A description of adapters on file.
class Machine {
 public:
  Machine() : folder_(testing::TempDir() + fmt::format("tutti_verbs_{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~Machine() { std::filesystem::remove_all(folder_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // `rest`: what stands behind "port N".
  Machine& device(const std::string& name, const std::string& address, int mostInline = 64) {
    const std::string place = folder_ + "/" + name;
    std::filesystem::create_directories(place);
    std::filesystem::create_symlink("../../../" + address, place + "/device");
    text_ += fmt::format("device {} {} {}\n", name, place, mostInline);
    portCount_ = 0;
    return *this;
  }
  Machine& port(const std::string& rest) {
    text_ += fmt::format("port {} {}\n", ++portCount_, rest);
    return *this;
  }
  // Two InfiniBand cards, the first with two ports.
  Machine& usual() {
    return device("mlx5_0", "0000:17:00.0")
        .port(kInfiniBand + std::string("5\ngid 0 ib fe80::5"))
        .device("mlx5_1", "0000:17:00.1")
        .port(kInfiniBand + std::string("6\ngid 0 ib fe80::6"))
        .device("mlx5_2", "0000:3b:00.0")
        .port(kInfiniBand + std::string("7\ngid 0 ib fe80::7"));
  }
  void write() const {
    const std::string path = folder_ + "/devices";
    std::ofstream(path) << text_;
    ASSERT_EQ(::setenv("FAKE_VERBS_DEVICES", path.c_str(), 1), 0);
  }

 private:
  const std::string folder_;
  std::string text_;
  int portCount_ = 0;
};

struct Lanes {
  std::unique_ptr<Lane> sender;
  std::unique_ptr<Lane> receiver;
};

class Verbs : public testing::Test {
 protected:
  Verbs() {
    order("");
    options_.library = TUTTI_FAKE_VERBS;
    options_.clock = &clock_;
  }
  ~Verbs() override {
    ::unsetenv("FAKE_VERBS");
    ::unsetenv("FAKE_VERBS_DEVICES");
  }
  static void order(const std::string& what) { ::setenv("FAKE_VERBS", what.c_str(), 1); }

  Result<std::unique_ptr<Fabric>> openFabric() {
    machine_.write();
    return open(options_, systemRng());
  }
  static Result<Lanes> connect(Fabric& fabric, size_t to = 0, size_t from = 0) {
    TUTTI_TRY_ASSIGN(const auto listener, fabric.listen(to));
    TUTTI_TRY_ASSIGN(const auto dialer, fabric.dial(from, listener->handle()));
    Lanes lanes;
    TUTTI_TRY_ASSIGN(lanes.receiver, listener->accept());
    EXPECT_EQ(lanes.receiver, nullptr);
    TUTTI_TRY_ASSIGN(lanes.sender, dialer->connect());
    listener->hear(dialer->answer());
    TUTTI_TRY_ASSIGN(lanes.receiver, listener->accept());
    return lanes;
  }
  // A fabric and a pair of lanes for who needs no more.
  void connectUsual() {
    auto fabric = openFabric();
    ASSERT_TRUE(fabric.ok()) << fabric.status().message();
    fabric_ = std::move(fabric).value();
    auto lanes = connect(*fabric_);
    ASSERT_TRUE(lanes.ok()) << lanes.status().message();
    lanes_ = std::move(lanes).value();
  }
  // Until there is a request, or a failure.
  static Result<Lane::Request> post(Lane& lane, std::span<std::byte> bytes, Lane::Memory memory) {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      TUTTI_TRY_ASSIGN(const Lane::Request request, lane.post(bytes, memory));
      if (request) return request;
      std::this_thread::yield();
    }
    return Status(Code::kInternalError, "nothing was posted");
  }
  static Result<size_t> await(Lane& lane, Lane::Request request) {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      TUTTI_TRY_ASSIGN(const std::optional<size_t> bytes, lane.test(request));
      if (bytes) return *bytes;
      std::this_thread::yield();
    }
    return Status(Code::kInternalError, "nothing came");
  }
  // Sends messages one by one until one fails.
  Status sendUntilItFails(int count = 40) {
    std::vector<std::byte> out(5000), in(5000);
    TUTTI_TRY_ASSIGN(const Lane::Memory outMemory, lanes_.sender->enroll(out));
    TUTTI_TRY_ASSIGN(const Lane::Memory inMemory, lanes_.receiver->enroll(in));
    const auto sendOne = [&]() -> Status {
      TUTTI_TRY_ASSIGN(const auto receive, post(*lanes_.receiver, in, inMemory));
      TUTTI_TRY_ASSIGN(const auto send, post(*lanes_.sender, out, outMemory));
      TUTTI_TRY(await(*lanes_.sender, send).takeStatus());
      return await(*lanes_.receiver, receive).takeStatus();
    };
    Status status;
    for (int i = 0; i < count && status.ok(); ++i) status = sendOne();
    lanes_.sender->release(outMemory);
    lanes_.receiver->release(inMemory);
    return status;
  }

  static constexpr int kMostAttempts = 10'000'000;
  ManualClock clock_;
  VerbsOptions options_;
  Machine machine_;
  std::unique_ptr<Fabric> fabric_;
  Lanes lanes_;  // gone before their fabric
};

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

TEST_F(Verbs, ASettingThatCannotBeReadIsRefused) {
  machine_.usual();
  options_.adapters = "mlx5_0:x";
  EXPECT_EQ(openFabric().status().code(), Code::kInvalidUsage);
}

TEST_F(Verbs, AnAdapterThatDoesNotOpenIsLeftOut) {
  machine_.usual();
  for (const char* what : {"fail open 1", "fail pd 1"}) {
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

TEST_F(Verbs, TakesNothingBeforeAReceiveIsPostedAndAtMostAWindow) {
  machine_.usual();
  connectUsual();
  std::vector<std::byte> bytes(64);
  const auto outMemory = lanes_.sender->enroll(bytes).value();
  EXPECT_FALSE(lanes_.sender->post(bytes, outMemory).value());
  const auto inMemory = lanes_.receiver->enroll(bytes).value();
  size_t count = 0;
  while (lanes_.receiver->post(bytes, inMemory).value()) ++count;
  EXPECT_EQ(count, Lane::kMaxRequests);
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
  EXPECT_THAT(std::string(fabric.value()->dial(0, LaneHandle{}).status().message()),
              HasSubstr("which no lane can have"));
  const auto listener = fabric.value()->listen(0).value();
  listener->hear(LaneHandle{});
  EXPECT_THAT(std::string(listener->accept().status().message()),
              HasSubstr("which no lane can have"));
}

TEST_F(Verbs, RefusesToConnectInfiniBandToRoce) {
  machine_.usual().device("rocep1", "0000:5e:00.0").port(kRoce);
  const auto fabric = openFabric();
  ASSERT_TRUE(fabric.ok());
  EXPECT_THAT(std::string(connect(*fabric.value(), 2, 0).takeStatus().message()),
              HasSubstr("mlx5_0:1 is InfiniBand, the peer's port is not"));
}

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

// ---- events -------------------------------------------------------------------------------------

TEST_F(Verbs, AnAdapterOrQueuePairThatFailsEndsTheLane) {
  machine_.usual();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"device-fatal", "failed or was removed (local catastrophic error)"},
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
  order("event 5 gid-change");
  EXPECT_TRUE(sendUntilItFails(200).ok());
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
