// Steps that a GPU folds: the host tells the links nothing before it is through.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "kernels/execution_testing.h"
#include "kernels/gpu_folder.h"

namespace tutti::kernels {
namespace {

// Folds when it has been asked a few times, in order.
class LateFolder final : public GpuFolder {
 public:
  explicit LateFolder(SeededRng& rng) : rng_(rng) {}

  Result<Ticket> start(const FoldSpec& spec, const FoldArgs& args) override {
    pending_.push_back({.spec = spec,
                        .sources = {args.sources.begin(), args.sources.end()},
                        .destinations = {args.destinations.begin(), args.destinations.end()},
                        .args = args});
    return ++last_;
  }
  Result<bool> isDone(Ticket ticket) override {
    if (fails) return Status(Code::kUnhandledCudaError, "the GPU has failed");
    if (done_ < ticket && rng_.below(3) == 0) foldNext();
    return done_ >= ticket;
  }

  bool fails = false;
  Ticket started() const { return last_; }

 private:
  struct Pending {
    FoldSpec spec;
    std::vector<const void*> sources;
    std::vector<void*> destinations;
    FoldArgs args;
  };
  void foldNext() {
    Pending next = std::move(pending_.front());
    pending_.pop_front();
    next.args.sources = next.sources;
    next.args.destinations = next.destinations;
    fold(next.spec, next.args);
    ++done_;
  }

  SeededRng& rng_;
  std::deque<Pending> pending_;
  Ticket last_ = 0, done_ = 0;
};

// Some messages in the GPU's slots, shorter ones in the host's.
TEST(GpuSteps, RunEveryAlgorithm) {
  SeededRng rng(20261123);
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : schedule::algorithms(static_cast<Collective>(c))) {
      for (const size_t count : {size_t{5}, size_t{700}, size_t{4000}}) {
        SCOPED_TRACE(testing::Message()
                     << name(algorithm.collective) << " " << algorithm.name << " count " << count);
        Cluster cluster({.algorithm = &algorithm,
                         .rankCount = 4,
                         .root = 1,
                         .count = count,
                         .slotCount = 8,
                         .shortCount = 8,
                         .hasGpuSlots = true},
                        3 * wire::kShortBytes);
        std::deque<LateFolder> folders;
        for (int rank = 0; rank < 4; ++rank) folders.emplace_back(rng);
        for (int times = 0; times < 2; ++times) {
          for (int rank = 0; rank < 4; ++rank) {
            cluster.startRank(rank, 1, nullptr, {.gpu = &folders[static_cast<size_t>(rank)]});
          }
          ASSERT_TRUE(cluster.run(rng));
          cluster.check();
        }
      }
    }
  }
}

TEST(GpuSteps, EndWithTheGpusFailure) {
  SeededRng rng(1);
  const Algorithm& algorithm = schedule::algorithms(Collective::kAllGather)[0];
  Cluster cluster({.algorithm = &algorithm,
                   .rankCount = 2,
                   .root = 0,
                   .count = 700,
                   .slotCount = 8,
                   .shortCount = 8,
                   .hasGpuSlots = true},
                  3 * wire::kShortBytes);
  LateFolder folder(rng);
  folder.fails = true;
  cluster.startRank(0, 1, nullptr, {.gpu = &folder});
  Status failure;
  for (int polls = 0; polls < 100 && failure.ok(); ++polls)
    failure = cluster.rank(0).execution.poll().takeStatus();
  EXPECT_EQ(failure.message(), "the GPU has failed");
  EXPECT_EQ(cluster.rank(0).execution.awaited().peer, -1);
  EXPECT_EQ(cluster.rank(0).execution.awaitedFault(), wire::LinkFault::kNone);
}

}  // namespace
}  // namespace tutti::kernels
