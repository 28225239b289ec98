#include "launch/join_board.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/char_field.h"
#include "base/log.h"

namespace tutti::launch {
namespace {

using bootstrap::HandoffToken;
using bootstrap::PeerInfo;
using observe::Board;

constexpr bootstrap::Tag kBoardTag{uint64_t{0x42'4f'41'52'44} << 24};

// Others wait for the offer for one of these, and for the descriptor for another.
constexpr int kOfferTimeouts = 3;

int64_t nanoseconds(std::chrono::milliseconds span) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(span).count();
}

std::vector<Rank> ranksOfHost(const std::vector<PeerInfo>& peers, const PeerInfo& self) {
  std::vector<Rank> ranks;
  for (const PeerInfo& peer : peers) {
    if (peer.hostHash == self.hostHash) ranks.push_back(Rank{peer.rank});
  }
  return ranks;
}

void placeRanks(const BoardParts& parts, Board& board) {
  const PeerInfo& self = parts.peers[static_cast<size_t>(index(parts.bootstrap.rank()))];
  for (const PeerInfo& peer : parts.peers) {
    const auto host = textOf(peer.hostName);
    if (peer.hostHash == self.hostHash) {
      board.place(peer.rank, host,
                  {.processId = peer.processId,
                   .start = peer.processStart,
                   .pidNamespace = peer.pidNamespace});
    } else {
      board.placeElsewhere(peer.rank, host, peer.processId);
    }
  }
}

Result<Board> makeBoard(const BoardParts& parts) {
  TUTTI_TRY_ASSIGN(Board board, Board::create(parts.bootstrap.rankCount(), parts.name,
                                              nanoseconds(parts.timeout)));
  placeRanks(parts, board);
  return board;
}

// An empty message tells the others that there is nothing to take.
Status tellOthers(const BoardParts& parts, std::span<const Rank> others,
                  std::span<const std::byte> message) {
  for (const Rank other : others) TUTTI_TRY(parts.bootstrap.send(other, kBoardTag, message));
  return {};
}

Result<Board> shareBoard(const BoardParts& parts, std::span<const Rank> others) {
  Result<Board> board = makeBoard(parts);
  if (!board.ok() || others.empty()) {
    TUTTI_TRY(tellOthers(parts, others, {}));
    return board;
  }
  // Who has not taken it then has died: nobody else keeps a rank waiting at this place.
  Result<HandoffToken> token = parts.handoff.offer(board->fd(), static_cast<int>(others.size()),
                                                   kOfferTimeouts * parts.timeout);
  if (token.ok()) parts.offer = *token;
  TUTTI_TRY(
      tellOthers(parts, others,
                 token.ok() ? std::span<const std::byte>(*token) : std::span<const std::byte>()));
  return board;
}

Result<Board> takeBoard(const BoardParts& parts, Rank from) {
  std::vector<std::byte> message;
  TUTTI_TRY(parts.bootstrap.receive(
      from, kBoardTag, {parts.timeout, &parts.abort, "the sharing of the board"}, message));
  HandoffToken token;
  if (message.size() != token.size())
    return Status(Code::kRemoteError, fmt::format("rank {} has no board to share", index(from)));
  std::memcpy(token.data(), message.data(), token.size());
  const PeerInfo& owner = parts.peers[static_cast<size_t>(index(from))];
  TUTTI_TRY_ASSIGN(UniqueFd fd, bootstrap::Handoff::take(owner.handoffName.data(), token,
                                                         parts.timeout, &parts.abort));
  TUTTI_TRY_ASSIGN(Board board, Board::open(std::move(fd)));
  if (board.rankCount() != parts.bootstrap.rankCount()) {
    return remoteError("rank {} shares a board for {} ranks, wanted {}", index(from),
                       board.rankCount(), parts.bootstrap.rankCount());
  }
  return board;
}

}  // namespace

Result<std::unique_ptr<observe::Recorder>> joinBoard(const BoardParts& parts) {
  const int32_t rank = index(parts.bootstrap.rank());
  const PeerInfo& self = parts.peers[static_cast<size_t>(rank)];
  const std::vector<Rank> local = ranksOfHost(parts.peers, self);
  const bool isFirst = local.front() == Rank{rank};
  Result<Board> board =
      isFirst ? shareBoard(parts, std::span(local).subspan(1)) : takeBoard(parts, local.front());
  if (!board.ok()) {
    if (parts.abort.load(std::memory_order_acquire)) return board.takeStatus();
    log::warn("rank {} shares no board, so nobody can tell why it is late: {}", rank,
              board.status().message());
    TUTTI_TRY_ASSIGN(Board own, Board::createPrivate(parts.bootstrap.rankCount()));
    placeRanks(parts, own);
    return std::make_unique<observe::Recorder>(std::move(own), rank, textOf(self.hostName),
                                               parts.recorders);
  }
  // One descriptor a process is enough for a reader from outside.
  const bool isFirstOfProcess = std::ranges::none_of(local, [&](Rank other) {
    return index(other) < rank &&
           parts.peers[static_cast<size_t>(index(other))].processHash == self.processHash;
  });
  if (!isFirstOfProcess) board->closeFd();
  return std::make_unique<observe::Recorder>(std::move(*board), rank, textOf(self.hostName),
                                             parts.recorders);
}

}  // namespace tutti::launch
