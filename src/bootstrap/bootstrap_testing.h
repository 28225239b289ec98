// Tests only: what ranks of a TestJob gather, and what becomes of them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/test_job.h"

namespace tutti::bootstrap {

inline std::span<const std::byte> bytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}
inline std::string textOf(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline void expectAllOk(const std::vector<RankResult>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(results[i].status.ok()) << i << ": " << results[i].status.message();
  }
}

// Every rank gathers what only its owner can know, in blocks of a size that is no power of two.
inline Status gatherAndCheck(Bootstrap& bootstrap, size_t blockBytes) {
  const auto count = static_cast<size_t>(bootstrap.rankCount());
  const auto self = static_cast<size_t>(index(bootstrap.rank()));
  std::vector<std::byte> all(count * blockBytes);
  const auto value = [](size_t rank, size_t at) {
    return static_cast<std::byte>((rank * 37 + at * 11 + 5) & 0xff);
  };
  for (size_t at = 0; at < blockBytes; ++at) all[self * blockBytes + at] = value(self, at);
  TUTTI_TRY(bootstrap.allGather(all, blockBytes));
  for (size_t rank = 0; rank < count; ++rank) {
    for (size_t at = 0; at < blockBytes; ++at) {
      if (all[rank * blockBytes + at] != value(rank, at)) {
        return internalError("rank {} has a wrong byte {} of rank {}", self, at, rank);
      }
    }
  }
  return {};
}

inline void expectAll(const std::vector<RankResult>& results, Code code, const std::string& text) {
  for (const RankResult& result : results) {
    EXPECT_EQ(result.status.code(), code);
    EXPECT_THAT(std::string(result.status.message()), ::testing::HasSubstr(text));
  }
}

}  // namespace tutti::bootstrap
