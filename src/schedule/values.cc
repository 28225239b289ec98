#include "schedule/values.h"

#include <fmt/core.h>

#include <bit>

namespace tutti::schedule {
namespace {

constexpr int32_t kWordBits = 64;
constexpr size_t kShownRanks = 8;  // in messages

uint64_t bitOf(int32_t rank) { return uint64_t{1} << (rank % kWordBits); }

}  // namespace

ValueTable::ValueTable(int32_t rankCount)
    : rankCount_(rankCount),
      wordsPerSet_((static_cast<size_t>(rankCount) + kWordBits - 1) / kWordBits) {}

// FNV-1a, a word at a time.
size_t ValueTable::KeyHash::operator()(const std::vector<ValueId>& key) const {
  uint64_t hash = 0xcbf29ce484222325;
  for (const ValueId id : key) {
    hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  return hash;
}

ValueId ValueTable::add(const Value& value) {
  values_.push_back(value);
  return ValueId{static_cast<int32_t>(values_.size()) - 1};
}

ValueId ValueTable::leaf(const Contribution& contribution, bool isRaw) {
  const auto rank = static_cast<uint64_t>(index(contribution.rank));
  const auto chunk = static_cast<uint64_t>(contribution.chunk);
  const uint64_t key = (rank << 33) | (chunk << 1) | uint64_t{isRaw};
  const auto [slot, isNew] = leaves_.try_emplace(key, kNoValue);
  if (isNew) {
    slot->second = add({.chunk = contribution.chunk, .rank = contribution.rank, .isRaw = isRaw});
  }
  return slot->second;
}

ValueId ValueTable::raw(const Contribution& contribution) { return leaf(contribution, true); }

bool ValueTable::holds(const Value& value, int32_t rank) const {
  if (value.firstWord < 0) return index(value.rank) == rank;
  const size_t word = static_cast<size_t>(value.firstWord) + static_cast<size_t>(rank / kWordBits);
  return (words_[word] & bitOf(rank)) != 0;
}

// Adds a source's contributions to the set at result.firstWord; says which is there already.
std::string ValueTable::unite(ValueId added, Value& result) {
  const Value& source = at(added);
  uint64_t* set = words_.data() + result.firstWord;
  for (size_t word = 0; word < wordsPerSet_; ++word) {
    const auto firstRank = static_cast<int32_t>(word) * kWordBits;
    uint64_t bits = 0;
    if (source.firstWord >= 0) {
      bits = words_[static_cast<size_t>(source.firstWord) + word];
    } else if (index(source.rank) / kWordBits == static_cast<int32_t>(word)) {
      bits = bitOf(index(source.rank));
    }
    if ((set[word] & bits) != 0) {
      return fmt::format("counts rank {}'s chunk {} twice",
                         firstRank + std::countr_zero(set[word] & bits), result.chunk);
    }
    set[word] |= bits;
  }
  result.contributionCount += source.contributionCount;
  return "";
}

// The union of all sources' contributions, when they are of one chunk and disjoint. A value with
// the post-operation holds them all, so whatever it is folded with is there twice.
std::string ValueTable::uniteAll(std::span<const ValueId> sources, Value& result) {
  result.firstWord = static_cast<int64_t>(words_.size());
  words_.resize(words_.size() + wordsPerSet_);
  result.contributionCount = 0;
  result.chunk = at(sources.front()).chunk;
  for (const ValueId id : sources) {
    const Value& source = at(id);
    if (source.chunk != result.chunk) {
      return fmt::format("folds {} with {}", describe(sources.front()), describe(id));
    }
    if (std::string refusal = unite(id, result); !refusal.empty()) return refusal;
  }
  return "";
}

ValueTable::FoldResult ValueTable::fold(std::span<const ValueId> sources, bool post) {
  if (sources.size() == 1 && !post) {
    const Value& source = at(sources.front());
    if (!source.isRaw) return {.value = sources.front(), .refusal = ""};
    return {.value = leaf({source.rank, source.chunk}, false), .refusal = ""};
  }
  key_.assign(sources.begin(), sources.end());
  if (post) key_.push_back(kNoValue);
  const auto known = folds_.find(key_);
  if (known != folds_.end()) return {.value = known->second, .refusal = ""};

  if (post && sources.size() == 1 && at(sources.front()).isPosted) {
    return {.value = kNoValue, .refusal = "applies the post-operation twice"};
  }
  Value result{.isPosted = post};
  if (std::string refusal = uniteAll(sources, result); !refusal.empty()) {
    return {.value = kNoValue, .refusal = std::move(refusal)};
  }
  if (post && result.contributionCount != rankCount_) {
    return {
        .value = kNoValue,
        .refusal = fmt::format("applies the post-operation to {} of {} contributions to chunk {}",
                               result.contributionCount, rankCount_, result.chunk)};
  }
  const ValueId id = add(result);
  folds_.emplace(key_, id);
  return {.value = id, .refusal = ""};
}

bool ValueTable::isCopyOf(ValueId value, const Contribution& contribution) const {
  const Value& held = at(value);
  return held.firstWord < 0 && !held.isPosted && held.rank == contribution.rank &&
         held.chunk == contribution.chunk;
}

bool ValueTable::isFinished(ValueId value, int32_t chunk) const {
  const Value& held = at(value);
  return held.isPosted && held.contributionCount == rankCount_ && held.chunk == chunk;
}

std::string ValueTable::describe(ValueId value) const {
  const Value& held = at(value);
  if (held.firstWord < 0) return fmt::format("rank {}'s chunk {}", index(held.rank), held.chunk);
  std::string text =
      fmt::format("chunk {} of {} of {} ranks (", held.chunk, held.contributionCount, rankCount_);
  size_t shown = 0;
  for (int32_t rank = 0; rank < rankCount_ && shown < kShownRanks; ++rank) {
    if (!holds(held, rank)) continue;
    text += fmt::format("{}{}", shown == 0 ? "" : " ", rank);
    ++shown;
  }
  if (static_cast<size_t>(held.contributionCount) > shown) text += " ...";
  return text + (held.isPosted ? ") with the post-operation" : ") without the post-operation");
}

}  // namespace tutti::schedule
