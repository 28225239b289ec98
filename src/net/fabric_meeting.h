// How two processes make the lanes of a link: over the control connection, in turns.
//
//   receiver  offer: its fabric's name, limits, a handle a lane    or  no: why not
//   sender    yes: its limits, an answer a lane, once it has all   or  no: why not
//   receiver  yes, once it has accepted all lanes                  or  no: why not
//
// After the first no both sides go on without the fabric: the control connection carries the link's
// messages, as if there had been no meeting.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "net/fabric.h"
#include "net/fabric_connection.h"
#include "net/foreign_calls.h"
#include "net/net.h"

namespace tutti::net {

// Words with their payloads over a connection that is not a link's yet.
class Mail {
 public:
  enum class Word : uint32_t { kOffer = 1, kYes = 2, kNo = 3 };
  struct Letter {
    Word word = Word::kNo;
    std::vector<std::byte> body;
    std::string text() const;  // of a no
  };

  explicit Mail(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
  void send(Word word, std::span<const std::byte> body);
  // True when nothing is left to go out.
  Result<bool> flush();
  Result<std::optional<Letter>> receive();
  std::unique_ptr<Connection> takeConnection() { return std::move(connection_); }

 private:
  std::unique_ptr<Connection> connection_;
  std::deque<std::vector<std::byte>> outgoing_;
  uint64_t sentCount_ = 0;
  Label label_;
  bool hasLabel_ = false;
  std::vector<std::byte> body_;
};

// One side. Its thread steps it until it is over. What the fabric is called for goes by Options::
// calls, so that a call which does not return is a no like any other.
class Meeting {
 public:
  struct Options {
    std::shared_ptr<Fabric> fabric;  // null: this process has none; shared with calls under way
    CallThread* calls = nullptr;     // where the fabric's calls are made; null: in step()
    std::shared_ptr<LaneThread> lanes{};  // LaneSet's
    std::string obstacle;                 // why it has none
    std::string peer;                     // "rank 3"
    Clock& clock;
    Nanoseconds patience{};          // for the fabric's own part; half a call's time-out at most
    Instant deadline{};              // for the peer's process to answer
    std::vector<size_t> adapters{};  // of this side that lanes may use; empty: all
    int trafficClass = kNoTrafficClass;
    device::SharedMemory* segments = nullptr;  // LaneSet's
  };
  virtual ~Meeting();

  // Moves what can be moved; true when it is over.
  bool step();
  // The link's connection, once it is over: over the fabric, or over the control connection, then
  // obstacle() says why. An error: the control connection is lost.
  Result<std::unique_ptr<Connection>> take();
  const std::string& obstacle() const { return options_.obstacle; }
  bool isOverFabric() const { return isOverFabric_; }

 protected:
  Meeting(std::unique_ptr<Connection> control, Options options);
  virtual Result<bool> advance() = 0;  // true: both sides know what comes next
  virtual Result<std::unique_ptr<Connection>> connectOver(std::unique_ptr<Connection> control,
                                                          LaneSet lanes) = 0;
  // This side's adapter of a lane, where the first lane's is the `first` of those it may use.
  size_t deviceOf(size_t lane, size_t first) const;
  void refuse(std::string why);
  bool hasRefused() const { return !options_.obstacle.empty(); }
  bool isTooLate() const { return fabricDeadline_ && options_.clock.now() > *fabricDeadline_; }
  // Of a call that is under way: which one it is that does not return. Empty: it may yet.
  std::string hang() const;
  // What calls may have made of the fabric's goes where these are made.
  template <typename T>
  void drop(std::shared_ptr<T> made) {
    if (options_.calls != nullptr && made != nullptr)
      options_.calls->post([own = std::move(made)] {});
  }
  void dropLanes();

  Options options_;
  Mail mail_;
  LaneSet lanes_;
  std::optional<Instant> fabricDeadline_;

 private:
  Result<std::unique_ptr<Connection>> finish();

  std::optional<Result<std::unique_ptr<Connection>>> result_;
  bool isOverFabric_ = false;
};

std::unique_ptr<Meeting> meetAsSender(std::unique_ptr<Connection> control,
                                      Meeting::Options options);
// `firstDevice`: the adapter of the first lane, counted round those that there are.
std::unique_ptr<Meeting> meetAsReceiver(std::unique_ptr<Connection> control,
                                        Meeting::Options options, size_t firstDevice);

}  // namespace tutti::net
