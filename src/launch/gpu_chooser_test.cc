#include "launch/gpu_chooser.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/units.h"

namespace tutti::launch {
namespace {

using graph::Protocol;
using kernels::cuda::GpuChoice;

plan::CallShape floats(Collective collective, uint64_t count) {
  return {.collective = collective, .count = count};
}

GpuChoice choiceOf(const GpuLimits& limits, const plan::CallShape& shape) {
  return kernels::cuda::choose(GpuChooser(limits).requestFor(shape)).value();
}

const plan::CallShape kShort = floats(Collective::kAllReduce, 256);
const plan::CallShape kLong = floats(Collective::kAllReduce, 64_MiB);

TEST(GpuChooser, LeavesTheUsualChoiceWhereNobodyHasASay) {
  GpuChooser chooser({.rankCount = 4, .ranksPerDevice = 2, .maxBlocks = 7, .minBlocks = 3});
  const kernels::cuda::GpuRequest request = chooser.requestFor(kLong);
  EXPECT_EQ(request.count, kLong.count);
  EXPECT_EQ(request.rankCount, 4);
  EXPECT_EQ(request.ranksPerDevice, 2);
  EXPECT_EQ(request.maxBlocks, 7);
  EXPECT_EQ(request.minBlocks, 3);
  EXPECT_EQ(request.lineBytes, -1);
}

TEST(GpuChooser, TakesTheProtocolsThatAreAllowed) {
  EXPECT_EQ(protocolOf(choiceOf({.rankCount = 4}, kShort)), Protocol::kLl);
  EXPECT_EQ(protocolOf(choiceOf({.rankCount = 4}, kLong)), Protocol::kSimple);
  EXPECT_EQ(protocolOf(choiceOf({.rankCount = 4, .protocols = "Simple"}, kShort)),
            Protocol::kSimple);
  EXPECT_EQ(protocolOf(choiceOf({.rankCount = 4, .protocols = "LL128"}, kShort)), Protocol::kLl128);
  EXPECT_NE(protocolOf(choiceOf({.rankCount = 4, .protocols = "^LL"}, kShort)), Protocol::kLl);
  const GpuLimits byCollective{.rankCount = 4, .protocols = "allreduce:simple"};
  EXPECT_EQ(protocolOf(choiceOf(byCollective, kShort)), Protocol::kSimple);
  EXPECT_EQ(protocolOf(choiceOf(byCollective, floats(Collective::kAllGather, 256))), Protocol::kLl);
}

TEST(GpuChooser, SendsTakeTheProtocolsThatAreAllowed) {
  const auto messagesOf = [](std::string_view protocols, Collective end, uint64_t bytes) {
    GpuChooser chooser({.rankCount = 2, .keepsLines = true, .protocols = std::string(protocols)});
    return kernels::cuda::shapeTransfer(bytes, chooser.requestFor(floats(end, bytes / 4))).messages;
  };
  using enum wire::GpuMessages;
  for (const Collective end : {Collective::kSend, Collective::kRecv}) {
    EXPECT_EQ(messagesOf("", end, 64), kLines);
    EXPECT_EQ(messagesOf("", end, 1_MiB), kWideLines);
    EXPECT_EQ(messagesOf("LL128", end, 64), kWideLines);
    EXPECT_EQ(messagesOf("^LL128", end, 1_MiB), kSlots);
    EXPECT_EQ(messagesOf("Simple", end, 64), kSlots);
    EXPECT_EQ(messagesOf("LL", end, 64), kLines);
    EXPECT_EQ(messagesOf("send:Simple", end, 64), kSlots) << "both ends alike";
    EXPECT_EQ(messagesOf("nonsense", end, 64), kLines);
  }
}

TEST(GpuChooser, IgnoresWhatLeavesNoKernel) {
  // Lines of so much data have no place.
  EXPECT_EQ(protocolOf(choiceOf({.rankCount = 4, .protocols = "LL"}, kLong)), Protocol::kSimple);
  EXPECT_EQ(choiceOf({.rankCount = 4, .algorithms = "nvls"}, kShort).algorithm, "oneshot");
  // "nvls" says nothing to kernels, and nothing about the protocol either.
  const GpuLimits usual{.rankCount = 4, .algorithms = "nvls", .protocols = "Simple"};
  EXPECT_EQ(protocolOf(choiceOf(usual, kShort)), Protocol::kSimple);
}

GpuChooser::Decision decisionOf(GpuLimits limits, const plan::CallShape& shape) {
  limits.hasPrograms = needsPrograms(limits);
  return GpuChooser(limits).decisionFor(shape);
}

TEST(GpuChooser, RunsAsAProgramWhatNoKernelIsNamedFor) {
  const auto ring = decisionOf({.rankCount = 4, .algorithms = "Ring"}, kLong);
  ASSERT_TRUE(ring.program.has_value());
  EXPECT_EQ(ring.program->algorithm->name, "ring");
  // Of those that are named the cheapest.
  const GpuLimits two{.rankCount = 4, .algorithms = "ring,tree"};
  EXPECT_EQ(decisionOf(two, kLong).program->algorithm->name, "ring");
  EXPECT_EQ(decisionOf(two, kShort).program->algorithm->name, "tree");
  // There is no tree of all-gathers, and a kernel has one of those named.
  EXPECT_FALSE(
      decisionOf({.rankCount = 4, .algorithms = "tree"}, floats(Collective::kAllGather, 64))
          .program);
  EXPECT_FALSE(decisionOf({.rankCount = 4, .algorithms = "ring,twoshot"}, kLong).program);
  EXPECT_FALSE(decisionOf({.rankCount = 4, .algorithms = "^oneshot"}, kShort).program);
}

TEST(GpuChooser, ProgramsTakeTheProtocolsThatAreAllowed) {
  const auto messagesBy = [](std::string_view protocols, bool keepsLines) {
    const GpuLimits limits{
        .rankCount = 12, .keepsLines = keepsLines, .protocols = std::string(protocols)};
    return decisionOf(limits, kShort).program->messages;
  };
  EXPECT_EQ(messagesBy("", true), wire::GpuMessages::kLines);
  EXPECT_EQ(messagesBy("LL128", true), wire::GpuMessages::kWideLines);
  EXPECT_EQ(messagesBy("LL128", false), wire::GpuMessages::kLines) << "nothing is left of it";
  EXPECT_EQ(messagesBy("Simple", true), wire::GpuMessages::kSlots);
}

TEST(GpuChooser, SegmentsHaveRoomForProgramsOnlyWhereSomeCallIsOne) {
  EXPECT_FALSE(needsPrograms({.rankCount = 8}));
  EXPECT_FALSE(needsPrograms({.rankCount = 4, .algorithms = "^NVLS"}));
  EXPECT_FALSE(needsPrograms({.rankCount = 4, .algorithms = "twoshot,oneshot,direct,pairwise"}));
  EXPECT_TRUE(needsPrograms({.rankCount = 4, .algorithms = "broadcast:tree"}));
  EXPECT_FALSE(needsPrograms({.rankCount = 1, .algorithms = "ring"}));
  EXPECT_TRUE(needsPrograms({.rankCount = 9}));
  EXPECT_FALSE(needsPrograms({.rankCount = wire::kGpuProgramRanks + 1}));
}

TEST(GpuChooser, RunsCallsOfManyRanksAsPrograms) {
  const auto usual = decisionOf({.rankCount = 12}, kShort);
  ASSERT_TRUE(usual.program.has_value());
  EXPECT_EQ(usual.program->algorithm->name, "oneshot");
  // What names nothing of the collective's is ignored there, too.
  EXPECT_EQ(decisionOf({.rankCount = 12, .algorithms = "nvls"}, kShort).program->algorithm->name,
            "oneshot");
}

TEST(GpuChooser, TakesTheAlgorithmsThatAreAllowed) {
  EXPECT_EQ(choiceOf({.rankCount = 4, .algorithms = "twoshot"}, kShort).algorithm, "twoshot");
  EXPECT_EQ(choiceOf({.rankCount = 4, .algorithms = "broadcast:twoshot"}, kShort).algorithm,
            "oneshot");
}

// Wants one protocol, in so many blocks.
class OneProtocol final : public plan::Tuner {
 public:
  OneProtocol(Protocol wanted, int32_t channels) : wanted_(wanted), channels_(channels) {}
  Advice advise(const Question& question) override {
    ++questions;
    EXPECT_TRUE(question.areKernels);
    EXPECT_EQ(question.bytes, 1024u);
    for (const plan::AlgorithmCost& each : question.costs) {
      EXPECT_GT(each.us, 0);
      if (each.protocol == wanted_) return {each.algorithm, each.protocol, channels_};
    }
    return {.channels = channels_};
  }
  std::string_view name() const override { return "one"; }

  int questions = 0;

 private:
  Protocol wanted_;
  int32_t channels_;
};

TEST(GpuChooser, AsksATunerOnceAShapeAndDoesWhatItSays) {
  for (const Protocol wanted : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
    const auto tuner = std::make_shared<OneProtocol>(wanted, 0);
    GpuChooser chooser({.rankCount = 4, .tuner = tuner});
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(protocolOf(kernels::cuda::choose(chooser.requestFor(kShort)).value()), wanted);
    EXPECT_EQ(tuner->questions, 1);
  }
}

TEST(GpuChooser, BoundsTheBlocksByWhatATunerSays) {
  const auto tuner = std::make_shared<OneProtocol>(Protocol::kSimple, 3);
  const plan::CallShape gather = floats(Collective::kAllGather, 64);
  EXPECT_EQ(GpuChooser({.rankCount = 4, .tuner = tuner}).requestFor(gather).maxBlocks, 3);
  EXPECT_EQ(
      GpuChooser({.rankCount = 4, .maxBlocks = 2, .tuner = tuner}).requestFor(gather).maxBlocks, 2);
}

TEST(GpuChooser, OffersATunerOnlyWhatIsAllowed) {
  const auto tuner = std::make_shared<OneProtocol>(Protocol::kLl, 0);
  const GpuLimits limits{.rankCount = 4, .protocols = "Simple", .tuner = tuner};
  EXPECT_EQ(protocolOf(choiceOf(limits, kShort)), Protocol::kSimple);
}

}  // namespace
}  // namespace tutti::launch
