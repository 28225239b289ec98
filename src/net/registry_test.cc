// Which network is taken, and what is said where it is none.
#include "net/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

namespace tutti::net {
namespace {

using testing::HasSubstr;

class Choice : public testing::Test {
 protected:
  Choice() { options_.verbs.isDisabled = true; }
  NetworkOptions options_;
};

TEST_F(Choice, TellsUnknownNetworksFromThoseThatCannotBeUsed) {
  options_.network = "IB";
  EXPECT_EQ(chooseNetwork(options_).status().message(),
            "NCCL_NET=IB: this network cannot be used: NCCL_IB_DISABLE=1");
  EXPECT_EQ(chooseNetwork(withWish(options_, {.name = "IB"})).status().message(),
            "config.netName=IB: this network cannot be used: NCCL_IB_DISABLE=1");
  options_.network = "nosuch";
  EXPECT_EQ(chooseNetwork(options_).status().message(),
            "NCCL_NET=nosuch: there is no such network (NCCL_NET_PLUGIN=none)");
}

TEST_F(Choice, DoesNotCountAnotherPluginAmongTheReasonsOfANetworkThatIsKnown) {
  options_.plugins = TUTTI_FAKE_NETS "/libnccl-net-fake11.so";
  options_.network = "IB";
  EXPECT_EQ(chooseNetwork(options_).status().message(),
            "NCCL_NET=IB: this network cannot be used: NCCL_IB_DISABLE=1");
  options_.network = "nosuch";
  EXPECT_THAT(std::string(chooseNetwork(options_).status().message()),
              HasSubstr("there is no such network: " TUTTI_FAKE_NETS
                        "/libnccl-net-fake11.so is network Fake"));
}

TEST_F(Choice, IsMadeInTimeWhereAPluginHangs) {
  options_.plugins = TUTTI_FAKE_NETS "/libnccl-net-fake11.so";
  options_.timeout = std::chrono::milliseconds(300);
  ::setenv("FAKE_NET", "hang-devices", 1);
  const std::string text =
      "network plug-in Fake has not returned from listing its devices within 300 ms (see "
      "TUTTI_TIMEOUT_MS)";
  const NetworkChoice choice = chooseNetwork(options_).value();
  EXPECT_EQ(choice.name, "socket");
  EXPECT_EQ(choice.reason, text);
  options_.network = "fake";
  EXPECT_EQ(chooseNetwork(options_).status().message(),
            "NCCL_NET=fake: this network cannot be used: " + text);
  ::unsetenv("FAKE_NET");
}

TEST(Fabrics, AreOpenedOnceWhileSomebodyHasThem) {
  struct Empty final : Fabric {
    const Caps& caps() const override { return caps_; }
    Result<std::unique_ptr<LaneListener>> listen(const LanePlace&) override {
      return std::unique_ptr<LaneListener>();
    }
    Result<std::unique_ptr<LaneDialer>> dial(const LanePlace&, const LaneHandle&) override {
      return std::unique_ptr<LaneDialer>();
    }
    Caps caps_;
  };
  Fabrics fabrics;
  int opened = 0;
  const auto open = [&opened]() -> Result<std::unique_ptr<Fabric>> {
    if (++opened == 1) return Status(Code::kSystemError, "not yet");
    return std::unique_ptr<Fabric>(std::make_unique<Empty>());
  };
  EXPECT_FALSE(fabrics.get("a", open).ok());
  std::shared_ptr<Fabric> first = fabrics.get("a", open).value();
  EXPECT_EQ(fabrics.get("a", open).value(), first);
  EXPECT_NE(fabrics.get("b", open).value(), first);
  EXPECT_EQ(opened, 3);
  first.reset();
  EXPECT_NE(fabrics.get("a", open).value(), nullptr);
  EXPECT_EQ(opened, 4);
}

}  // namespace
}  // namespace tutti::net
