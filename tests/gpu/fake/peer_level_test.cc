// Whether ranks of two GPUs that are PHB apart (two_gpus.xml) use each other's memory, by
// NCCL_P2P_LEVEL; the same of a communicator that is split off. NCCL_DEBUG_FILE has what they say,
// PEER_LEVEL what it is to be: kernels, host, or warned, where the level is none.
#include "base/read_file.h"
#include "tests/gpu/ranks.h"

namespace tutti::gputest {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t countOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++count;
  return count;
}

TEST(PeerLevel, DecidesWhichRanksGoByKernels) {
  const char* path = std::getenv("NCCL_DEBUG_FILE");
  const char* wanted = std::getenv("PEER_LEVEL");
  if (path == nullptr || wanted == nullptr) GTEST_SKIP() << "PEER_LEVEL is not set";
  runRanks([](RankSide& side) {
    ncclComm_t half = nullptr;
    EXPECT_NCCL(ncclCommSplit(side.comm, 0, side.rank, &half, nullptr));
    EXPECT_NCCL(ncclCommDestroy(half));
  });
  const std::string said = readFile(path);
  const std::string reason = "do not use each other's memory: PHB, where rank 0 wants ";
  if (std::string_view(wanted) == "host") {
    EXPECT_EQ(
        countOf(said, "2 GPU ranks go through host memory, which is slower: GPU 0000:01:00.0"), 2u)
        << said;
    EXPECT_THAT(said, HasSubstr(reason));
  } else {
    EXPECT_THAT(said, Not(HasSubstr("through host memory")));
    EXPECT_THAT(said, Not(HasSubstr(reason)));
  }
  if (std::string_view(wanted) == "warned") {
    EXPECT_THAT(said, HasSubstr("NCCL_P2P_LEVEL=near (environment): wanted one of LOC"));
  }
}

}  // namespace
}  // namespace tutti::gputest
