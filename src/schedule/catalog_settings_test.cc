// The catalogue and the table of settings do not know each other; this keeps them in step.
#include <gtest/gtest.h>

#include <string>

#include "base/settings.h"
#include "schedule/catalog.h"

namespace tutti::schedule {
namespace {

TEST(Catalog, NcclAlgoTakesTheNameOfEveryAlgorithm) {
  for (int collective = 0; collective < kCollectiveCount; ++collective) {
    for (const Algorithm& algorithm : algorithms(static_cast<Collective>(collective))) {
      const Settings settings = Settings::parse(
          {.environment = {"NCCL_ALGO=" + std::string(algorithm.name)}, .files = {}});
      EXPECT_TRUE(settings.complaints().empty())
          << algorithm.name << " is missing in kAlgorithmNames of base/settings_table.cc";
    }
  }
}

}  // namespace
}  // namespace tutti::schedule
