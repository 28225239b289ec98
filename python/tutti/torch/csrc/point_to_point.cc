#include "point_to_point.h"

#include <algorithm>
#include <cstring>

namespace tutti::pytorch {
namespace {

constexpr auto kFirstLook = std::chrono::microseconds(200);  // of the door and of callers, in the
                                                             // store
constexpr auto kSlowestLook = std::chrono::microseconds(20'000);

std::string nameOf(int peer) {
  return peer == PointToPoint::kAnyone ? "any rank" : "rank " + std::to_string(peer);
}

}  // namespace

PointToPoint::PointToPoint(std::shared_ptr<const Library> library,
                           c10::intrusive_ptr<c10d::Store> store, int rank, int size)
    : library_(std::move(library)), store_(std::move(store)), rank_(rank), size_(size) {}

PointToPoint::~PointToPoint() {
  close("the process group was destroyed");
  const auto join = [](std::thread& thread) {
    if (!thread.joinable()) return;
    if (thread.get_id() == std::this_thread::get_id()) return thread.detach();
    thread.join();
  };
  join(door_);
  for (auto* links : {&senders_, &receivers_}) {
    for (auto& [peer, link] : *links) join(link->thread);
  }
}

std::string PointToPoint::keyOf(int from, int to) const {
  return "tutti/messages/" + std::to_string(from) + "/" + std::to_string(to);
}

void PointToPoint::send(Letter letter) {
  const std::lock_guard lock(mutex_);
  if (isClosed_) throw std::runtime_error(std::string(letter.operation->title()) + ": " + reason_);
  Link& link = startSender(letter.peer);
  if (!link.broken.empty()) throw std::runtime_error(link.broken);
  link.letters.push_back(std::move(letter));
  changed_.notify_all();
}

void PointToPoint::receive(Letter letter) {
  {
    const std::lock_guard lock(mutex_);
    if (isClosed_)
      throw std::runtime_error(std::string(letter.operation->title()) + ": " + reason_);
    if (!takeKept(letter)) {
      const auto known = receivers_.find(letter.peer);
      if (known != receivers_.end() && !known->second->broken.empty())
        throw std::runtime_error(known->second->broken);
      posted_.push_back(std::move(letter));
      startDoor();
      changed_.notify_all();
      return;
    }
  }
  // A kept message was copied.
  if (letter.finish) letter.finish();
  letter.operation->succeed();
}

// Looks among messages that came early; of several senders', in the order of their ranks.
bool PointToPoint::takeKept(Letter& letter) {
  for (auto& [peer, link] : receivers_) {
    if (letter.peer != kAnyone && letter.peer != peer) continue;
    for (auto kept = link->kept.begin(); kept != link->kept.end(); ++kept) {
      if (kept->header.tag != letter.tag) continue;
      if (kept->header.bytes != letter.tensor.nbytes()) {
        throw std::runtime_error(std::string(letter.operation->title()) + ": rank " +
                                 std::to_string(peer) + " sent " +
                                 std::to_string(kept->header.bytes) + " bytes, the tensor has " +
                                 std::to_string(letter.tensor.nbytes()));
      }
      std::memcpy(letter.tensor.data_ptr(), kept->bytes.data_ptr(), kept->header.bytes);
      letter.operation->setSource(peer);
      link->kept.erase(kept);
      return true;
    }
  }
  return false;
}

PointToPoint::Link& PointToPoint::startSender(int to) {
  auto& link = senders_[to];
  if (link == nullptr) {
    link = std::make_unique<Link>();
    link->peer = to;
    link->thread = std::thread([this, &started = *link] { runSender(started); });
  }
  return *link;
}

void PointToPoint::startDoor() {
  if (!door_.joinable()) door_ = std::thread([this] { runDoor(); });
}

void PointToPoint::runSender(Link& link) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return isClosed_ || !link.letters.empty(); });
    if (isClosed_) return;
    const Letter letter = std::move(link.letters.front());
    link.letters.pop_front();
    if (!link.broken.empty()) {
      const std::string reason = link.broken;
      lock.unlock();
      letter.operation->failWith(reason);
      lock.lock();
      continue;
    }
    link.current = letter.operation;
    lock.unlock();
    try {
      if (connect(link, letter)) transmit(link, letter);
      letter.operation->succeed();
    } catch (const std::exception& error) {
      letter.operation->failWith(error.what());
      breakLink(link, error.what());
    }
    lock.lock();
    link.current.reset();
  }
}

// Calls the receiver and waits for its answer. False when the operation is over before that: the
// next one waits on.
bool PointToPoint::connect(Link& link, const Letter& letter) {
  if (link.communicator != nullptr) return true;
  const std::string key = keyOf(rank_, link.peer);
  if (!store_->check({key})) store_->set(key, bytesOf(Communicator::makeId(*library_)));
  auto pause = kFirstLook;
  while (!store_->check({key + "/answer"})) {
    if (letter.operation->isOver()) return false;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, pause, [&] { return isClosed_; });
    if (isClosed_) throw std::runtime_error(reason_);
    pause = std::min(pause * 3 / 2, kSlowestLook);
  }
  const std::vector<uint8_t> id = store_->get(key);
  std::shared_ptr<Communicator> joined = Communicator::join(library_, {id.begin(), id.end()}, 0, 2);
  const std::lock_guard lock(mutex_);
  if (isClosed_) throw std::runtime_error(reason_);
  link.communicator = std::move(joined);
  return true;
}

void PointToPoint::transmit(Link& link, const Letter& letter) {
  const std::string doing = "rank " + std::to_string(rank_) + " sends to rank " +
                            std::to_string(link.peer) + " (ranks 0 and 1 of a communicator of two)";
  const Communicator& communicator = *link.communicator;
  const Header header{letter.tag, letter.tensor.nbytes()};
  library_->check(
      library_->send(&header, sizeof header, ncclInt8, 1, communicator.handle(), nullptr), doing);
  if (header.bytes == 0) return;
  library_->check(library_->send(letter.tensor.data_ptr(), header.bytes, ncclInt8, 1,
                                 communicator.handle(), nullptr),
                  doing);
}

// Whether a message of this sender could be taken by a receive that is posted.
bool PointToPoint::isWanted(const Link& link) const {
  return std::any_of(posted_.begin(), posted_.end(), [&](const Letter& letter) {
    return letter.peer == kAnyone || letter.peer == link.peer;
  });
}

// A sender that has called, whom a posted receive would take and who has no answer yet. Lock not
// held.
std::optional<int> PointToPoint::findCaller() {
  std::vector<int> candidates;
  {
    const std::lock_guard lock(mutex_);
    for (int peer = 0; peer < size_; ++peer) {
      const Link asIf{.peer = peer};
      if (peer != rank_ && receivers_.count(peer) == 0 && isWanted(asIf))
        candidates.push_back(peer);
    }
  }
  for (const int peer : candidates) {
    if (store_->check({keyOf(peer, rank_)})) return peer;
  }
  return std::nullopt;
}

void PointToPoint::runDoor() {
  auto pause = kFirstLook;
  std::unique_lock lock(mutex_);
  while (!isClosed_) {
    if (posted_.empty()) {
      pause = kFirstLook;
      changed_.wait(lock, [&] { return isClosed_ || !posted_.empty(); });
      continue;
    }
    lock.unlock();
    try {
      while (const auto caller = findCaller()) answer(*caller);
    } catch (const std::exception&) {
      // The store is gone, as at the end of a job: receives run into their deadlines.
    }
    lock.lock();
    changed_.wait_for(lock, pause, [&] { return isClosed_; });
    pause = std::min(pause * 3 / 2, kSlowestLook);
  }
}

void PointToPoint::answer(int from) {
  auto link = std::make_unique<Link>();
  link->peer = from;
  try {
    const std::string key = keyOf(from, rank_);
    const std::vector<uint8_t> id = store_->get(key);
    store_->set(key + "/answer", bytesOf("1"));
    link->communicator = Communicator::join(library_, {id.begin(), id.end()}, 1, 2);
  } catch (const std::exception& error) {
    link->broken = std::string("receiving from rank ") + std::to_string(from) + ": " + error.what();
  }
  std::unique_lock lock(mutex_);
  if (isClosed_) return;
  Link& kept = *receivers_.emplace(from, std::move(link)).first->second;
  if (!kept.broken.empty()) return failReceivesOf(from, kept.broken, lock);
  kept.thread = std::thread([this, &kept] { runReceiver(kept); });
}

void PointToPoint::runReceiver(Link& link) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return isClosed_ || isWanted(link); });
    if (isClosed_) return;
    const std::shared_ptr<Communicator> communicator = link.communicator;
    link.isListening = true;
    lock.unlock();
    try {
      acceptMessage(link, communicator);
    } catch (const std::exception& error) {
      breakLink(link, "rank " + std::to_string(rank_) + " receives from rank " +
                          std::to_string(link.peer) +
                          " (ranks 1 and 0 of a communicator of two): " + error.what());
      return;
    }
    lock.lock();
  }
}

void PointToPoint::acceptMessage(Link& link, const std::shared_ptr<Communicator>& communicator) {
  Header header{};
  library_->check(
      library_->recv(&header, sizeof header, ncclInt8, 0, communicator->handle(), nullptr),
      "header");
  std::optional<Letter> letter = claim(link, header);
  if (letter) return fill(link, *communicator, header, *letter);
  // Others of its tag may be posted later; what waits behind it is wanted now.
  Kept kept{header, at::empty({static_cast<int64_t>(header.bytes)}, at::kByte)};
  if (header.bytes != 0) {
    library_->check(library_->recv(kept.bytes.data_ptr(), header.bytes, ncclInt8, 0,
                                   communicator->handle(), nullptr),
                    "elements");
  }
  std::optional<Letter> late;
  {
    const std::lock_guard lock(mutex_);
    link.kept.push_back(std::move(kept));
    const auto posted = std::find_if(posted_.begin(), posted_.end(), [&](const Letter& each) {
      return each.tag == header.tag && (each.peer == kAnyone || each.peer == link.peer);
    });
    if (posted == posted_.end()) return;
    late = std::move(*posted);
    posted_.erase(posted);
  }
  const c10::intrusive_ptr<Operation> operation = late->operation;
  try {
    receive(std::move(*late));  // was posted meanwhile
  } catch (const std::exception& error) {
    operation->failWith(error.what());
  }
}

// Waits for the receive that takes the message; nothing when another message of this sender is
// wanted first.
std::optional<PointToPoint::Letter> PointToPoint::claim(Link& link, const Header& header) {
  std::unique_lock lock(mutex_);
  link.isListening = false;
  for (;;) {
    if (isClosed_) throw std::runtime_error(reason_);
    bool isOtherWanted = false;
    for (auto posted = posted_.begin(); posted != posted_.end(); ++posted) {
      if (posted->peer != kAnyone && posted->peer != link.peer) continue;
      if (posted->tag != header.tag) {
        isOtherWanted = true;
        continue;
      }
      Letter letter = std::move(*posted);
      posted_.erase(posted);
      link.current = letter.operation;
      return letter;
    }
    if (isOtherWanted) return std::nullopt;
    changed_.wait(lock);
  }
}

void PointToPoint::fill(Link& link, const Communicator& communicator, const Header& header,
                        Letter& letter) {
  const bool fits = header.bytes == letter.tensor.nbytes();
  // One that does not fit is taken all the same: the messages behind it are good.
  const at::Tensor target =
      fits ? letter.tensor : at::empty({static_cast<int64_t>(header.bytes)}, at::kByte);
  try {
    if (header.bytes != 0) {
      library_->check(library_->recv(target.data_ptr(), header.bytes, ncclInt8, 0,
                                     communicator.handle(), nullptr),
                      "elements");
    }
  } catch (const std::exception& error) {
    letter.operation->failWith(std::string(letter.operation->title()) + ": rank " +
                               std::to_string(rank_) + " receives from rank " +
                               std::to_string(link.peer) + ": " + error.what());
    throw;
  }
  if (fits) {
    letter.operation->setSource(link.peer);
    if (letter.finish) letter.finish();
    letter.operation->succeed();
  } else {
    letter.operation->failWith(std::string(letter.operation->title()) + ": rank " +
                               std::to_string(link.peer) + " sent " + std::to_string(header.bytes) +
                               " bytes, the tensor has " + std::to_string(letter.tensor.nbytes()));
  }
  const std::lock_guard lock(mutex_);
  link.current.reset();
}

void PointToPoint::breakLink(Link& link, const std::string& reason) {
  std::unique_lock lock(mutex_);
  link.isListening = false;
  if (link.broken.empty()) link.broken = isClosed_ ? reason_ : reason;
  const std::shared_ptr<Communicator> communicator = link.communicator;
  const auto sender = senders_.find(link.peer);
  const bool isSender = sender != senders_.end() && sender->second.get() == &link;
  if (isSender) {
    std::deque<Letter> unsent;
    unsent.swap(link.letters);
    lock.unlock();
    for (const Letter& letter : unsent) letter.operation->failWith(reason);
  } else {
    failReceivesOf(link.peer, reason, lock);
  }
  if (communicator != nullptr) communicator->abort();
}

// Receives that name the peer, and those from anyone: it may be the one that they wait for. Returns
// unlocked.
void PointToPoint::failReceivesOf(int peer, const std::string& reason,
                                  std::unique_lock<std::mutex>& lock) {
  std::list<Letter> failed;
  for (auto posted = posted_.begin(); posted != posted_.end();) {
    const auto next = std::next(posted);
    if (posted->peer == peer || posted->peer == kAnyone)
      failed.splice(failed.end(), posted_, posted);
    posted = next;
  }
  lock.unlock();
  for (const Letter& letter : failed) letter.operation->failWith(reason);
}

void PointToPoint::look(Instant now) {
  std::list<Letter> late;
  std::vector<std::pair<c10::intrusive_ptr<Operation>, int>> stuck;
  std::vector<std::shared_ptr<Communicator>> broken;
  {
    const std::lock_guard lock(mutex_);
    for (auto posted = posted_.begin(); posted != posted_.end();) {
      const auto next = std::next(posted);
      if (posted->operation->deadline() <= now) late.splice(late.end(), posted_, posted);
      posted = next;
    }
    for (auto* links : {&senders_, &receivers_}) {
      for (auto& [peer, link] : *links) {
        if (!link->current || link->current->deadline() > now) continue;
        stuck.emplace_back(link->current, peer);
        if (link->communicator != nullptr) broken.push_back(link->communicator);
      }
    }
  }
  const auto fail = [this](Operation& operation, int peer) {
    operation.failWith(std::string(operation.title()) + ": Timed out waiting " +
                       std::to_string(operation.timeout().count()) + "ms on rank " +
                       std::to_string(rank_) + " for " + nameOf(peer) +
                       " (timeout of init_process_group or new_group)");
  };
  for (const Letter& letter : late) fail(*letter.operation, letter.peer);
  for (const auto& [operation, peer] : stuck) fail(*operation, peer);
  for (const auto& communicator : broken) communicator->abort();
}

void PointToPoint::close(const std::string& reason) {
  std::list<Letter> dropped;
  std::vector<std::shared_ptr<Communicator>> communicators;
  {
    const std::lock_guard lock(mutex_);
    if (!isClosed_) reason_ = reason;
    isClosed_ = true;
    dropped.swap(posted_);
    for (auto* links : {&senders_, &receivers_}) {
      for (auto& [peer, link] : *links) {
        for (Letter& letter : link->letters) dropped.push_back(std::move(letter));
        link->letters.clear();
        const bool isInLibrary = link->current || link->isListening;
        if (isInLibrary && link->communicator != nullptr)
          communicators.push_back(link->communicator);
      }
    }
    changed_.notify_all();
  }
  for (const auto& communicator : communicators) communicator->abort();
  for (const Letter& letter : dropped) letter.operation->failWith(reason);
}

}  // namespace tutti::pytorch
