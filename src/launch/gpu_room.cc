#include "launch/gpu_room.h"

#include <algorithm>

namespace tutti::launch {
namespace {

// Twelfths of a multiprocessor, as a block of the row's kind finds them taken by one of the
// column's that lies anywhere. A block of which a multiprocessor holds n takes an n-th of it, and
// one of the row's finds no room where what is left is less than it takes; the numbers are such
// that blocks among which it finds none take twelve. So there is room on one of the multiprocessors
// while less than twelve on each are taken.
constexpr uint64_t kWhole = 12;
constexpr std::array<std::array<uint64_t, 4>, 4> kTaken = {{
    {12, 12, 12, 12},
    {12, 6, 6, 6},
    {12, 8, 4, 4},
    {12, 6, 6, 3},
}};

}  // namespace

// ---- a guest

GpuRoom::Guest::Guest(GpuRoom& room, Tail tail) : room_(room) {
  running_.tail = std::move(tail);
  std::lock_guard lock(room_.mutex_);
  room_.guests_.push_back(this);
  room_.others_.reserve(room_.guests_.size());
}

GpuRoom::Guest::~Guest() {
  std::lock_guard lock(room_.mutex_);
  std::erase(room_.guests_, this);
}

void GpuRoom::Guest::Stay::mergeShares() {
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const Share& a = untilProbe[kind];
    const Share& b = sinceProbe[kind];
    shares[kind] = {.blocks = std::max(a.blocks, b.blocks),
                    .leastBlocks = std::max(a.leastBlocks, b.leastBlocks)};
  }
}

void GpuRoom::Guest::Stay::addShares(const Shares& others) {
  for (size_t kind = 0; kind < kKinds; ++kind) {
    shares[kind] = {.blocks = std::max(shares[kind].blocks, others[kind].blocks),
                    .leastBlocks = std::max(shares[kind].leastBlocks, others[kind].leastBlocks)};
  }
}

bool GpuRoom::Guest::Stay::isEmpty() const {
  return std::ranges::all_of(shares, [](const Share& share) { return share.blocks == 0; });
}

GpuRoom::Guest::Stay& GpuRoom::Guest::stayOf(uint64_t capture) {
  if (capture == 0) return running_;
  const auto found = std::ranges::find(captured_, capture, &Stay::capture);
  if (found != captured_.end()) return *found;
  Stay& made = *std::ranges::min_element(captured_, {}, &Stay::turn);
  made = {.capture = capture};
  return made;
}

void GpuRoom::Guest::count(const Launch& launch) {
  Stay& own = stayOf(launch.capture);
  Share& share = own.sinceProbe[kindOf(launch)];
  share.blocks = std::max(share.blocks, launch.blocks);
  share.leastBlocks = std::max(share.leastBlocks, launch.leastBlocks);
  own.turn = ++room_.turns_;
  if (launch.capture == 0) return;
  Share& kept = inGraphs_.sinceProbe[kindOf(launch)];
  kept.blocks = std::max(kept.blocks, launch.blocks);
  kept.leastBlocks = std::max(kept.leastBlocks, launch.leastBlocks);
  inGraphs_.turn = own.turn;
}

void GpuRoom::Guest::keepGraphs(std::weak_ptr<const void> graphs, Tail order) {
  std::lock_guard lock(room_.mutex_);
  if (order == nullptr) inGraphs_.sinceProbe = {};
  graphs_ = std::move(graphs);
  order_ = std::move(order);
}

bool GpuRoom::Guest::tryEnter(const Launch& launch) {
  std::lock_guard lock(room_.mutex_);
  room_.gatherOthers(*this, launch);
  if (!room_.fits(launch)) return false;
  count(launch);
  return true;
}

// For those first that have been there for longest, so that the newest, which have most ahead of
// them, may run beside it.
void GpuRoom::Guest::enter(const Launch& launch, Tails& before, Tails& orders) {
  std::lock_guard lock(room_.mutex_);
  room_.gatherOthers(*this, launch);
  while (!room_.fits(launch)) {
    Stay* first = room_.eldest();
    first->isAhead = true;
    if (first->order != nullptr) orders.push_back(first->order);
    // What runs beside graphs is in their order. None yet: another thread captures its first call
    // now, and which is first nobody can say.
    const bool isInOrder = first->order != nullptr && launch.capture == 0;
    if (first->tail != nullptr && !isInOrder) before.push_back(first->tail);
  }
  count(launch);
}

void GpuRoom::Guest::settle(uint64_t stream) {
  std::lock_guard lock(room_.mutex_);
  running_.stream = stream;
}

void GpuRoom::Guest::settleCaptured(uint64_t capture, const Tail& tail) {
  std::lock_guard lock(room_.mutex_);
  stayOf(capture).tail = tail;
}

void GpuRoom::Guest::probe() {
  std::lock_guard lock(room_.mutex_);
  running_.untilProbe = running_.sinceProbe;
  running_.sinceProbe = {};
}

void GpuRoom::Guest::probeReached() {
  std::lock_guard lock(room_.mutex_);
  running_.untilProbe = {};
}

void GpuRoom::Guest::leave() {
  std::lock_guard lock(room_.mutex_);
  running_.untilProbe = running_.sinceProbe = {};
}

// ---- the room

size_t GpuRoom::kindOf(const Launch& launch) {
  return std::clamp<size_t>(launch.perMultiprocessor, 1, Guest::kKinds) - 1;
}

GpuRoom::Guest::Shares GpuRoom::sharesOf(const Launch& launch) {
  Guest::Shares shares{};
  shares[kindOf(launch)] = {.blocks = launch.blocks, .leastBlocks = launch.leastBlocks};
  return shares;
}

// What is on the launch's own stream has ended when it starts.
void GpuRoom::gatherOthers(const Guest& self, const Launch& launch) {
  others_.clear();
  for (Guest* guest : guests_) {
    if (guest == &self) continue;
    Stay* stay = stayBeside(*guest, launch);
    if (stay == nullptr) continue;
    stay->isAhead = launch.stream.has_value() && stay->stream == launch.stream;
    stay->mergeShares();
    stay->order = nullptr;
    // Of the same capture are both in one graph, and so far in order.
    const bool isTogether = launch.capture != 0 && stay != &guest->inGraphs_;
    if (guest->hasGraphs() && !isTogether) {
      guest->inGraphs_.mergeShares();
      if (!guest->inGraphs_.isEmpty()) {
        stay->isAhead = false;  // replays may be on any stream
        stay->addShares(guest->inGraphs_.shares);
        stay->order = guest->order_;
      }
    }
    if (!stay->isAhead && !stay->isEmpty()) others_.push_back(stay);
  }
}

// Of a guest's launches one is there at a time. Beside a graph are those of the same capture, and
// other graphs; beside a launch that runs all that runs, and graphs.
GpuRoom::Stay* GpuRoom::stayBeside(Guest& guest, const Launch& launch) {
  if (launch.capture == 0) return &guest.running_;
  const auto found = std::ranges::find(guest.captured_, launch.capture, &Stay::capture);
  if (found != guest.captured_.end()) return &*found;
  return guest.hasGraphs() ? &guest.inGraphs_ : nullptr;
}

// By kind of the block that looks for room.
GpuRoom::Taken GpuRoom::takenBy(const Guest::Shares& shares) {
  Taken taken{};
  for (size_t looking = 0; looking < taken.size(); ++looking) {
    for (size_t kind = 0; kind < shares.size(); ++kind)
      taken[looking] = std::max(taken[looking], shares[kind].blocks * kTaken[looking][kind]);
  }
  return taken;
}

// Each launch, whichever it is of those that `shares` stands for, beside the others in `all`.
bool GpuRoom::hasRoom(const Guest::Shares& shares, const Taken& all) const {
  const Taken own = takenBy(shares);
  for (size_t kind = 0; kind < shares.size(); ++kind) {
    if (shares[kind].blocks == 0) continue;
    const uint64_t needed = shares[kind].leastBlocks * kTaken[kind][kind];
    if (all[kind] - own[kind] + needed > kWhole * multiprocessors_) return false;
  }
  return true;
}

bool GpuRoom::fits(const Launch& launch) const {
  const Guest::Shares own = sharesOf(launch);
  Taken all = takenBy(own);
  bool isAlone = true;
  for (const Stay* stay : others_) {
    if (stay->isAhead) continue;
    isAlone = false;
    const Taken taken = takenBy(stay->shares);
    for (size_t kind = 0; kind < all.size(); ++kind) all[kind] += taken[kind];
  }
  if (isAlone) return true;
  return hasRoom(own, all) && std::ranges::all_of(others_, [&](const Stay* stay) {
           return stay->isAhead || hasRoom(stay->shares, all);
         });
}

// REQUIRES: there is one beside the launch.
GpuRoom::Stay* GpuRoom::eldest() const {
  Stay* first = nullptr;
  for (Stay* stay : others_) {
    if (!stay->isAhead && (first == nullptr || stay->turn < first->turn)) first = stay;
  }
  return first;
}

GpuRoom& GpuRooms::of(const device::Accelerator& gpu) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<GpuRoom>& room = rooms_[&gpu];
  if (room == nullptr) room = std::make_unique<GpuRoom>(gpu.multiprocessors());
  return *room;
}

}  // namespace tutti::launch
