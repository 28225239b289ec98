// How ranks say that their calls go, whose GPUs have links that keep lines whole and copy engines
// in their multiprocessors: what all of them agree on when they meet. NCCL_DEBUG_FILE has what they
// say.
#include "base/read_file.h"
#include "tests/gpu/ranks.h"

namespace tutti::gputest {
namespace {

using testing::HasSubstr;

TEST(Choices, AreMadeByWhatTheGpusOfAllRanksHave) {
  const char* path = std::getenv("NCCL_DEBUG_FILE");
  if (path == nullptr) GTEST_SKIP() << "NCCL_DEBUG_FILE says nothing";
  runRanks([](RankSide&) {});
  const std::string said = readFile(path);
  EXPECT_THAT(said, HasSubstr("by wide lines"));
  EXPECT_THAT(said, HasSubstr("32 at most in long calls"));
}

}  // namespace
}  // namespace tutti::gputest
