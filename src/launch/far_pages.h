// The pages of ranks of other hosts, which are on no board here: their processes tell them with the
// signs of life that they are asked for. What comes is checked, and used as a page of the board is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "bootstrap/bootstrap.h"
#include "observe/board.h"
#include "observe/diagnosis.h"

namespace tutti::launch {

// A rank's newest operations, what it waits for, and the verdict of its host's board: no code,
// none. Ages in place of times, since no two hosts have the same clock. Pure.
std::vector<std::byte> encodePage(const observe::RankView& rank, const observe::Verdict& verdict,
                                  int64_t now);
// Puts the first two in place of the view's; none where the bytes are no page of a board of so many
// ranks.
std::optional<observe::Verdict> decodePage(std::span<const std::byte> bytes, int64_t now,
                                           int32_t rankCount, observe::RankView& view);

// Used by one thread. While there is one, this rank's own page is told to whoever asks.
class FarPages {
 public:
  // `bootstrap` may be null: then there are no others. REQUIRES: all outlive it.
  FarPages(bootstrap::Bootstrap* bootstrap, observe::Board& board, int32_t rank, Clock& clock);
  ~FarPages();
  FarPages(const FarPages&) = delete;
  FarPages& operator=(const FarPages&) = delete;

  // A new look: who is asked from now on is asked once, however many want to know.
  void beginLook() { asked_.clear(); }
  // Asks a rank for a sign of life. False: it cannot be asked any more.
  bool ask(int32_t rank);

  // Fills in what is known of those that rank `start` waits for, and of those that they wait for:
  // what they called, and, where that is news, what they wait for; `tutti why` sees that, too. And
  // asks them, for the next time. What the first of them says that has failed; else no code.
  observe::Verdict addAwaited(std::vector<observe::RankView>& ranks, int32_t start);
  // Of these, what they tell once they are asked now; waits for that, but not for long.
  void addFresh(std::vector<observe::RankView>& ranks, std::span<const int32_t> wanted);

  // What the first of these has said, so far, that has failed; else no code. Asks nobody.
  observe::Verdict toldBy(std::vector<observe::RankView>& ranks,
                          std::span<const int32_t> some) const;

  // What that rank has told so far, if it is of another host. Asks nobody.
  void addTold(observe::RankView& rank) const;

  // The host's board has its verdict: others hear of it that wait for a link that was never made.
  void tellVerdict();

 private:
  struct Heard {
    bool isThere = false;
    Instant askedAt{};  // long ago where it came unasked
    observe::Verdict verdict{};
    bool isLast = false;  // it cannot be asked any more
  };
  bool isFar(const observe::RankView& rank) const {
    return bootstrap_ != nullptr && rank.life == observe::Life::kElsewhere;
  }
  Heard add(observe::RankView& rank, int32_t rankCount);
  Heard find(observe::RankView& rank, int32_t rankCount) const;

  struct Asked {
    int32_t rank = -1;
    bool isTaken = false;
  };

  bootstrap::Bootstrap* const bootstrap_;
  observe::Board& board_;
  Clock& clock_;
  std::vector<Asked> asked_;  // in this look
};

}  // namespace tutti::launch
