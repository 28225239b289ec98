#include "comm/subgroup.h"

#include <algorithm>

#include "bootstrap/messages.h"

namespace tutti::comm {
namespace {

// A member that fails tells its partners of the later rounds: they stay this much longer each.
constexpr std::chrono::milliseconds kRelay{250};

enum class Content : uint8_t { kBlocks = 0, kFailure = 1 };

constexpr size_t kMaxPieceBytes = bootstrap::Bootstrap::kMaxMessageBytes - 1;

std::vector<std::byte> pack(Content content, std::span<const std::byte> bytes) {
  std::vector<std::byte> message(1 + bytes.size(), static_cast<std::byte>(content));
  std::copy(bytes.begin(), bytes.end(), message.begin() + 1);
  return message;
}

struct Partner {
  Rank rank;
  bootstrap::Tag tag;
  bootstrap::Bootstrap::Wait wait{};
};

Status sendBlocks(const Subgroup& group, const Partner& to, std::span<const std::byte> blocks) {
  while (!blocks.empty()) {
    const size_t bytes = std::min(blocks.size(), kMaxPieceBytes);
    TUTTI_TRY(group.bootstrap.send(to.rank, to.tag, pack(Content::kBlocks, blocks.first(bytes))));
    blocks = blocks.subspan(bytes);
  }
  return {};
}

Status receiveBlocks(const Subgroup& group, const Partner& from, std::span<std::byte> blocks) {
  std::vector<std::byte> message;
  while (!blocks.empty()) {
    const size_t bytes = std::min(blocks.size(), kMaxPieceBytes);
    TUTTI_TRY(group.bootstrap.receive(from.rank, from.tag, from.wait, message));
    const auto payload = std::span(message).subspan(std::min<size_t>(message.size(), 1));
    if (!message.empty() && message[0] == static_cast<std::byte>(Content::kFailure))
      return bootstrap::decodeFailure(payload);
    if (payload.size() != bytes) {
      return invalidUsage(
          "rank {} sent {} bytes in {}, rank {} wanted {}: the ranks disagree about it",
          index(from.rank), payload.size(), group.what, index(group.bootstrap.rank()), bytes);
    }
    std::copy(payload.begin(), payload.end(), blocks.begin());
    blocks = blocks.subspan(bytes);
  }
  return {};
}

}  // namespace

// Bruck's algorithm, as the bootstrap's own all-gather.
Status gather(const Subgroup& group, Status own, std::span<std::byte> all, size_t blockBytes) {
  const size_t count = group.members.size();
  const auto self = static_cast<size_t>(std::distance(
      group.members.begin(), std::ranges::find(group.members, group.bootstrap.rank())));
  if (self == count)
    return internalError("rank {} is in no {}", index(group.bootstrap.rank()), group.what);
  std::vector<std::byte> rotated(count * blockBytes);
  const auto blockOf = [&](size_t place) { return all.subspan(place * blockBytes, blockBytes); };
  std::copy_n(blockOf(self).begin(), blockBytes, rotated.begin());
  Status outcome = std::move(own);
  uint64_t round = 0;
  for (size_t distance = 1; distance < count; distance *= 2, ++round) {
    const size_t bytes = std::min(distance, count - distance) * blockBytes;
    const bootstrap::Tag tag{group.tag | round};
    const Partner to{group.members[(self + count - distance) % count], tag};
    const Partner from{
        group.members[(self + distance) % count],
        tag,
        {group.timeout + kRelay * static_cast<int64_t>(round), group.abort, group.what}};
    if (!outcome.ok()) {
      const auto text = pack(Content::kFailure, bootstrap::encode(outcome));
      // A partner that cannot be told finds out by itself.
      [[maybe_unused]] const Status told = group.bootstrap.send(to.rank, tag, text);
      continue;
    }
    outcome = sendBlocks(group, to, std::span(rotated).first(bytes));
    if (outcome.ok())
      outcome =
          receiveBlocks(group, from, std::span(rotated).subspan(distance * blockBytes, bytes));
  }
  TUTTI_TRY(std::move(outcome));
  for (size_t i = 0; i < count; ++i) {
    std::copy_n(rotated.begin() + static_cast<ptrdiff_t>(i * blockBytes), blockBytes,
                blockOf((self + i) % count).begin());
  }
  return {};
}

}  // namespace tutti::comm
