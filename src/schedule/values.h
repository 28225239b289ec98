// Symbolic values: what a chunk would hold, as the tree of folds that made it. Equal trees have
// equal ids, so "the same bits on every rank" is a comparison of two numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "schedule/contract.h"

namespace tutti::schedule {

enum class ValueId : int32_t {};
inline constexpr ValueId kNoValue{-1};

class ValueTable {
 public:
  explicit ValueTable(int32_t rankCount);

  // A rank's input chunk as it lies in the user's buffer. A pre-multiplied sum scales it where it
  // is read, without rounding, so it is not the same as the copy of it that a message carries.
  ValueId raw(const Contribution& contribution);

  // The value of a step. A copy without post-operation is its source, if that is not raw.
  struct FoldResult {
    ValueId value = kNoValue;
    std::string refusal;  // why the step is wrong; empty when there is a value
  };
  FoldResult fold(std::span<const ValueId> sources, bool post);

  // The contribution that this value is a copy of; false when it is a fold or post-processed.
  bool isCopyOf(ValueId value, const Contribution& contribution) const;
  // All ranks' contributions to the chunk, each once, with the post-operation.
  bool isFinished(ValueId value, int32_t chunk) const;

  // "rank 1's chunk 2", "chunk 2 of ranks 0 1 3 without the post-operation".
  std::string describe(ValueId value) const;

 private:
  struct Value {
    int32_t chunk = 0;  // of all contributions in it
    int32_t contributionCount = 1;
    Rank rank{0};            // of the one contribution; the set's is in words_ when more
    int64_t firstWord = -1;  // into words_: one bit a rank; -1: only `rank`
    bool isRaw = false;
    bool isPosted = false;
  };
  struct KeyHash {
    size_t operator()(const std::vector<ValueId>& key) const;
  };

  const Value& at(ValueId value) const { return values_[static_cast<size_t>(value)]; }
  ValueId add(const Value& value);
  ValueId leaf(const Contribution& contribution, bool isRaw);
  std::string uniteAll(std::span<const ValueId> sources, Value& result);
  std::string unite(ValueId added, Value& result);
  bool holds(const Value& value, int32_t rank) const;

  int32_t rankCount_;
  size_t wordsPerSet_;
  std::vector<Value> values_;
  std::vector<uint64_t> words_;
  std::unordered_map<uint64_t, ValueId> leaves_;
  std::unordered_map<std::vector<ValueId>, ValueId, KeyHash> folds_;
  std::vector<ValueId> key_;  // scratch
};

}  // namespace tutti::schedule
