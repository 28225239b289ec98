// Every version of the interface, by the plug-in of tests/fakes/net.c; FAKE_NET says what it does.
#include "net/plugin/plugin_fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <thread>
#include <vector>

namespace tutti::net::plugin {
namespace {

using testing::HasSubstr;

std::string pathOf(int version) {
  return fmt::format("{}/libnccl-net-fake{}.so", TUTTI_FAKE_NETS, version);
}

class NetPlugin : public testing::TestWithParam<int> {
 protected:
  static void order(const char* what) { ASSERT_EQ(::setenv("FAKE_NET", what, 1), 0); }
  void TearDown() override { ::unsetenv("FAKE_NET"); }

  static Result<std::unique_ptr<Fabric>> openFake() {
    TUTTI_TRY_ASSIGN(const PluginLibrary library, load(pathOf(GetParam())));
    EXPECT_EQ(library.version, GetParam());
    EXPECT_EQ(nameOf(library), "Fake");
    return open(library, 77);
  }

  struct Lanes {
    std::unique_ptr<Lane> sender;
    std::unique_ptr<Lane> receiver;
  };
  static Result<Lanes> connect(Fabric& fabric) {
    TUTTI_TRY_ASSIGN(const auto listener, fabric.listen({.device = 1}));
    TUTTI_TRY_ASSIGN(const auto dialer, fabric.dial({.device = 0}, listener->handle()));
    Lanes lanes;
    while (!lanes.sender || !lanes.receiver) {
      if (!lanes.sender) {
        TUTTI_TRY_ASSIGN(lanes.sender, dialer->connect());
      }
      if (!lanes.receiver) {
        TUTTI_TRY_ASSIGN(lanes.receiver, listener->accept());
      }
      std::this_thread::yield();
    }
    return lanes;
  }
  static Result<size_t> await(Lane& lane, Lane::Request request) {
    for (;;) {
      TUTTI_TRY_ASSIGN(const std::optional<size_t> bytes, lane.test(request));
      if (bytes) return *bytes;
      std::this_thread::yield();
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Versions, NetPlugin, testing::Values(6, 7, 8, 9, 10, 11),
                         [](const auto& version) { return fmt::format("v{}", version.param); });

TEST_P(NetPlugin, MovesMessagesInOrder) {
  const auto fabric = openFake();
  ASSERT_TRUE(fabric.ok()) << fabric.status().message();
  EXPECT_EQ(fabric.value()->caps().deviceCount, 2u);
  EXPECT_THAT(fabric.value()->caps().description, HasSubstr("fake1 (10000 Mb/s)"));
  auto lanes = connect(*fabric.value());
  ASSERT_TRUE(lanes.ok()) << lanes.status().message();
  std::vector<std::byte> out(3000), in(3000);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 7);
  const auto outMemory = lanes->sender->enroll(out).value();
  const auto inMemory = lanes->receiver->enroll(in).value();
  std::array<Lane::Request, 3> sends, receives;
  for (size_t i = 0; i < 3; ++i) {
    receives[i] = lanes->receiver->post(std::span(in).subspan(1000 * i, 1000), inMemory).value();
    sends[i] = lanes->sender->post(std::span(out).subspan(1000 * i, 1000 - i), outMemory).value();
    ASSERT_TRUE(receives[i] && sends[i]);
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(await(*lanes->sender, sends[i]).value(), 1000 - i);
    EXPECT_EQ(await(*lanes->receiver, receives[i]).value(), 1000 - i);
    EXPECT_TRUE(std::equal(in.begin() + 1000 * i, in.begin() + 1000 * i + 1000 - i,
                           out.begin() + 1000 * i));
  }
  lanes->sender->release(outMemory);
  lanes->receiver->release(inMemory);
}

TEST_P(NetPlugin, NamesTheCallThatFails) {
  for (const char* what : {"init", "listen", "connect", "accept"}) {
    order(fmt::format("fail-{}", what).c_str());
    const auto fabric = openFake();
    const Status failed =
        !fabric.ok() ? fabric.status().clone() : connect(*fabric.value()).takeStatus();
    EXPECT_EQ(failed.message(), fmt::format("network plug-in Fake: {} returned 2", what));
  }
}

TEST_P(NetPlugin, IsRefusedWithoutAdapters) {
  order("no-devices");
  EXPECT_THAT(std::string(openFake().status().message()),
              HasSubstr("no adapter for memory of the host (0 adapters)"));
}

TEST_P(NetPlugin, NamesTheRequestThatFails) {
  const auto fabric = openFake();
  ASSERT_TRUE(fabric.ok());
  auto lanes = connect(*fabric.value());
  ASSERT_TRUE(lanes.ok());
  std::array<std::byte, 8> bytes{};
  const auto outMemory = lanes->sender->enroll(bytes).value();
  std::array<std::byte, 8> others{};
  // Memory of another place was registered.
  const auto status = lanes->sender->post(others, outMemory).takeStatus();
  EXPECT_EQ(status.message(), "network plug-in Fake: isend returned 3");
  EXPECT_EQ(lanes->receiver->post(others, outMemory).status().message(),
            "network plug-in Fake: irecv returned 3");
  lanes->sender->release(outMemory);
}

TEST(NetPluginFiles, AreNoErrorWhereNobodyAskedForOne) {
  EXPECT_FALSE(load("").value().exists());
  EXPECT_FALSE(load("none").value().exists());
}

TEST(NetPluginFiles, ThatAreNotThereOrNoNetworksAreNamed) {
  for (const char* setting : {"absent", "/nowhere/libnccl-net.so", "STATIC_PLUGIN", "libm.so.6"}) {
    const auto library = load(setting);
    ASSERT_FALSE(library.ok()) << setting;
    EXPECT_THAT(std::string(library.status().message()),
                HasSubstr(fmt::format("NCCL_NET_PLUGIN={}", setting)));
  }
}

}  // namespace
}  // namespace tutti::net::plugin
