// Messages between two ranks, as torch wants them: matched by sender and tag, in any order against
// each other and against collectives, from any sender if asked so.
//
// The library's send and receive take their turn with everything else of a communicator. So each
// direction between two ranks has a communicator of its own, made with its first message, and a
// thread on either side. The sender calls through the store, the receiver answers when a posted
// receive may take the message, and they join. A message is a header with tag and length, then the
// elements, received where they belong; one whose tag is not the one waited for is kept until
// somebody wants it.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "communicator.h"
#include "elements.h"

namespace tutti::pytorch {

class PointToPoint {
 public:
  // A send, or a receive; ends `operation`.
  struct Letter {
    c10::intrusive_ptr<Operation> operation;
    at::Tensor tensor;             // contiguous memory of the message
    std::function<void()> finish;  // of a receive: what is left to do when the tensor is there
    int peer = kAnyone;
    int64_t tag = 0;
  };
  static constexpr int kAnyone = -1;

  PointToPoint(std::shared_ptr<const Library> library, c10::intrusive_ptr<c10d::Store> store,
               int rank, int size);
  ~PointToPoint();
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // Never wait. Throw when closed. Any thread.
  void send(Letter letter);
  void receive(Letter letter);

  // Fails receives that nobody answered in time, and breaks links whose message stands still.
  void look(Instant now);
  // Fails everything, and whatever comes later. Does not wait for the threads; the destructor does.
  void close(const std::string& reason);

 private:
  struct Header {
    int64_t tag;
    uint64_t bytes;
  };
  struct Kept {  // a message that came before anybody wanted it
    Header header;
    at::Tensor bytes;
  };
  // One direction to or from a peer. Its thread alone uses the communicator, others may abort it.
  struct Link {
    int peer = 0;
    std::shared_ptr<Communicator> communicator;  // guarded by mutex_; shared with the thread and
                                                 // whoever aborts
    std::string broken;                          // guarded by mutex_: why nothing goes any more
    std::deque<Letter> letters;                  // guarded by mutex_: to be sent
    std::list<Kept> kept;                        // guarded by mutex_: received early
    c10::intrusive_ptr<Operation> current;       // guarded by mutex_: whose message is under way
    bool isListening = false;  // guarded by mutex_: waits in the library for a header
    std::thread thread;
  };

  std::string keyOf(int from, int to) const;
  Link& startSender(int to);
  void startDoor();
  // Threads: of a sender, of a receiver, and the one that looks in the store for senders that call.
  void runSender(Link& link);
  void runReceiver(Link& link);
  void runDoor();

  bool connect(Link& link, const Letter& letter);
  void answer(int from);
  std::optional<int> findCaller();
  void transmit(Link& link, const Letter& letter);
  void acceptMessage(Link& link, const std::shared_ptr<Communicator>& communicator);
  std::optional<Letter> claim(Link& link, const Header& header);
  void fill(Link& link, const Communicator& communicator, const Header& header, Letter& letter);
  bool isWanted(const Link& link) const;
  bool takeKept(Letter& letter);
  void breakLink(Link& link, const std::string& reason);
  void failReceivesOf(int peer, const std::string& reason, std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<const Library> library_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::unique_ptr<Link>> senders_;    // by peer
  std::map<int, std::unique_ptr<Link>> receivers_;  // by peer
  std::list<Letter> posted_;                        // receives, in the order of the calls
  std::thread door_;
  bool isClosed_ = false;
  std::string reason_;
};

}  // namespace tutti::pytorch
