// Every version of the interface, by the plug-in of tests/fakes/collnet.c; FAKE_COLLNET says what
// it does, and a thread of the test reduces for it.
#include "net/plugin/plugin_reduction.h"

#include <arpa/inet.h>
#include <collnet_frames.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace tutti::net::plugin {
namespace {

using testing::HasSubstr;

bool receiveAll(int fd, void* data, size_t bytes) {
  return ::recv(fd, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

// Adds what two members hand in, int32 by int32, or puts it one after the other, until they have
// gone.
class Switch {
 public:
  Switch() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* place = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_.get(), place, length), 0);
    EXPECT_EQ(::listen(listener_.get(), 2), 0);
    EXPECT_EQ(::getsockname(listener_.get(), place, &length), 0);
    ::setenv("FAKE_COLLNET_AT", fmt::format("127.0.0.1:{}", ntohs(address.sin_port)).c_str(), 1);
    thread_ = std::thread([this] { serve(); });
  }
  ~Switch() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    ::unsetenv("FAKE_COLLNET_AT");
  }
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

 private:
  void serve() {
    std::array<UniqueFd, 2> members;
    for (UniqueFd& member : members) {
      CollnetHello hello;
      member.reset(::accept(listener_.get(), nullptr, nullptr));
      if (!member || !receiveAll(member.get(), &hello, sizeof hello)) return;
    }
    for (const UniqueFd& member : members) ::send(member.get(), "", 1, MSG_NOSIGNAL);
    for (;;) {
      CollnetFrame frame{};
      std::vector<int32_t> result;
      for (const UniqueFd& member : members) {
        if (!receiveAll(member.get(), &frame, sizeof frame)) return;
        std::vector<int32_t> part(frame.bytes / sizeof(int32_t));
        if (!receiveAll(member.get(), part.data(), frame.bytes)) return;
        if (frame.work == kCollnetGather) {
          result.insert(result.end(), part.begin(), part.end());
          continue;
        }
        result.resize(part.size());
        for (size_t i = 0; i < part.size(); ++i) result[i] += part[i];
      }
      const size_t count = result.size() / (frame.work == kCollnetScatter ? members.size() : 1);
      frame.bytes = static_cast<uint32_t>(count * sizeof(int32_t));
      const int32_t* of = result.data();
      for (const UniqueFd& member : members) {
        ::send(member.get(), &frame, sizeof frame, MSG_NOSIGNAL);
        ::send(member.get(), of, frame.bytes, MSG_NOSIGNAL);
        if (frame.work == kCollnetScatter) of += count;
      }
    }
  }

  UniqueFd listener_;
  std::thread thread_;
};

class CollnetPlugin : public testing::TestWithParam<int> {
 protected:
  static void order(const std::string& what) {
    ASSERT_EQ(::setenv("FAKE_COLLNET", what.c_str(), 1), 0);
  }
  void TearDown() override { ::unsetenv("FAKE_COLLNET"); }

  static Result<std::unique_ptr<ReductionNetwork>> open() {
    return openReduction(fmt::format("{}/libnccl-collnet-fake{}.so", TUTTI_FAKE_NETS, GetParam()),
                         77);
  }

  using Groups = std::array<std::unique_ptr<ReductionGroup>, 2>;
  static Result<Groups> connect(ReductionNetwork& network) {
    TUTTI_TRY_ASSIGN(const auto first, network.listen(0));
    TUTTI_TRY_ASSIGN(const auto second, network.listen(1));
    const std::array<MemberHandle, 2> handles{first->handle(), second->handle()};
    Groups groups;
    while (groups[0] == nullptr || groups[1] == nullptr) {
      if (groups[0] == nullptr) {
        TUTTI_TRY_ASSIGN(groups[0], first->connect(handles, 0));
      }
      if (groups[1] == nullptr) {
        TUTTI_TRY_ASSIGN(groups[1], second->connect(handles, 1));
      }
      std::this_thread::yield();
    }
    return groups;
  }
};

INSTANTIATE_TEST_SUITE_P(Versions, CollnetPlugin, testing::Values(6, 7, 8, 9, 10, 11),
                         [](const auto& version) { return fmt::format("v{}", version.param); });

TEST_P(CollnetPlugin, ReducesWhatItsMembersHandIn) {
  const Switch adder;
  const auto network = open();
  ASSERT_TRUE(network.ok()) << network.status().message();
  EXPECT_EQ(network.value()->caps().name, "FakeSwitch");
  EXPECT_EQ(network.value()->caps().deviceCount, 2u);
  EXPECT_THAT(network.value()->caps().description, HasSubstr("switch1 (10000 Mb/s)"));
  auto groups = connect(*network.value());
  ASSERT_TRUE(groups.ok()) << groups.status().message();
  constexpr size_t kCount = 1000;
  struct Member {
    std::vector<int32_t> numbers = std::vector<int32_t>(2 * kCount);
    ReductionGroup::Memory memory{};
    ReductionGroup::Request request{};
    bool isDone = false;
  };
  std::array<Member, 2> members;
  for (size_t i = 0; i < members.size(); ++i) {
    Member& member = members[i];
    for (size_t at = 0; at < kCount; ++at)
      member.numbers[at] = static_cast<int32_t>(at + 10'000 * i);
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(member.numbers));
    member.memory = groups.value()[i]->enroll(bytes).value();
    member.request = groups.value()[i]
                         ->post({.input = bytes.data(),
                                 .output = bytes.data() + bytes.size() / 2,
                                 .elementCount = kCount,
                                 .type = DataType::kInt32,
                                 .inputMemory = member.memory,
                                 .outputMemory = member.memory})
                         .value();
    ASSERT_TRUE(member.request);
  }
  while (!members[0].isDone || !members[1].isDone) {
    for (size_t i = 0; i < members.size(); ++i) {
      if (!members[i].isDone)
        members[i].isDone = groups.value()[i]->test(members[i].request).value();
    }
  }
  for (size_t i = 0; i < members.size(); ++i) {
    for (size_t at = 0; at < kCount; ++at)
      ASSERT_EQ(members[i].numbers[kCount + at], static_cast<int32_t>(2 * at + 10'000));
    groups.value()[i]->release(members[i].memory);
  }
}

// Two members, each with a number at a time: 0, 1, ... and 10'000, 10'001, ...
TEST_P(CollnetPlugin, GathersAndScattersFromVersion8On) {
  const Switch adder;
  const auto network = open().value();
  const bool has = GetParam() >= 8;
  EXPECT_EQ(network->caps().gathers, has);
  EXPECT_EQ(network->caps().scatters, has);
  auto groups = connect(*network).value();
  constexpr size_t kCount = 500;
  for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
    std::array<std::vector<int32_t>, 2> numbers;  // two inputs, two outputs
    std::array<ReductionGroup::Memory, 2> memory;
    std::array<ReductionGroup::Request, 2> requests;
    for (size_t i = 0; i < 2; ++i) {
      numbers[i].resize(4 * kCount);
      for (size_t at = 0; at < 2 * kCount; ++at)
        numbers[i][at] = static_cast<int32_t>(at + 10'000 * i);
      const std::span<std::byte> bytes = std::as_writable_bytes(std::span(numbers[i]));
      memory[i] = groups[i]->enroll(bytes).value();
      Result<ReductionGroup::Request> request =
          groups[i]->post({.collective = collective,
                           .input = bytes.data(),
                           .output = bytes.data() + bytes.size() / 2,
                           .elementCount = kCount,
                           .type = DataType::kInt32,
                           .inputMemory = memory[i],
                           .outputMemory = memory[i]});
      ASSERT_EQ(request.ok(), has);
      if (has) requests[i] = *request;
    }
    for (std::array<bool, 2> done{}; has && (!done[0] || !done[1]);) {
      for (size_t i = 0; i < 2; ++i) {
        if (!done[i]) done[i] = groups[i]->test(requests[i]).value();
      }
    }
    for (size_t i = 0; i < 2; ++i) {
      for (size_t at = 0; has && at < kCount; ++at) {
        const int32_t* output = &numbers[i][2 * kCount];
        const auto number = static_cast<int32_t>(at);
        if (collective == Collective::kAllGather) {
          ASSERT_EQ(output[at], number);
          ASSERT_EQ(output[kCount + at], number + 10'000);
        } else {
          ASSERT_EQ(output[at], 2 * (number + static_cast<int32_t>(i * kCount)) + 10'000);
        }
      }
      groups[i]->release(memory[i]);
    }
  }
}

TEST_P(CollnetPlugin, TellsWhatItReduces) {
  order("no-floats");
  const auto network = open().value();
  EXPECT_TRUE(network->supports(DataType::kInt32, ReduceOp::kMax).value());
  EXPECT_FALSE(network->supports(DataType::kFloat32, ReduceOp::kSum).value());
}

TEST_P(CollnetPlugin, NamesTheCallThatFails) {
  for (const char* what : {"init", "listen", "connect"}) {
    order(fmt::format("fail-{}", what));
    const auto network = open();
    const Status failed =
        !network.ok() ? network.status().clone() : connect(*network.value()).takeStatus();
    EXPECT_EQ(failed.message(), fmt::format("collective network FakeSwitch: {} returned 2", what));
  }
}

TEST_P(CollnetPlugin, IsRefusedWithoutAdapters) {
  order("no-devices");
  EXPECT_THAT(
      std::string(open().status().message()),
      HasSubstr("collective network FakeSwitch: it has no adapter for memory of the host (0 "
                "adapters)"));
}

TEST(CollnetPluginFiles, ThatAreNotThereOrHoldNoneAreNamed) {
  EXPECT_EQ(openReduction("none", 1).value(), nullptr);
  EXPECT_THAT(std::string(openReduction("absent", 1).status().message()),
              HasSubstr("libnccl-net-absent.so"));
  EXPECT_THAT(
      std::string(openReduction("libm.so.6", 1).status().message()),
      HasSubstr("has no net plug-in of a version that is known here (ncclCollNetPlugin_v6 to "
                "ncclCollNetPlugin_v11)"));
}

}  // namespace
}  // namespace tutti::net::plugin
