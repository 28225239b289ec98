#include "transport/transport.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/process_counts_testing.h"
#include "base/units.h"
#include "bootstrap/handoff.h"
#include "device/ping_pong_for_test.h"
#include "device/registry.h"
#include "transport/connect_testing.h"
#include "transport/registry.h"

namespace tutti::transport {
namespace {

using bootstrap::Handoff;
using bootstrap::PeerInfo;
using device::PingPongTask;

constexpr wire::LinkGeometry kGeometry{.slotCount = 2, .slotBytes = 128};

// What a process has: its transports, and what it tells its peers.
struct Process {
  explicit Process(uint64_t processHash) {
    info.hostHash = 7;
    info.processHash = processHash;
    info.userId = ::geteuid();
    const std::string name = handoff.name();
    EXPECT_LT(name.size(), info.handoffName.size());
    std::memcpy(info.handoffName.data(), name.data(), name.size());
  }
  PeerInfo rank(int32_t number) const {
    PeerInfo copy = info;
    copy.rank = number;
    return copy;
  }

  Handoff handoff;
  Transports transports =
      openTransports({.handoff = &handoff, .timeout = std::chrono::milliseconds(2000)});
  PeerInfo info;
};

// Both sides do their part of a burst exchange over links made by the test; true when every byte
// was right.
bool exchange(const wire::LinkView& out, const wire::LinkView& in, bool first, uint64_t rounds) {
  const auto host = device::openDevice(device::DeviceKind::kHost, {}).value();
  PingPongTask task({.out = out, .in = in, .first = first, .rounds = rounds, .burst = 3});
  device::Task* one = &task;
  return host->enqueue(nullptr, {&one, 1}).ok() && task.completions() == 1 && task.status().ok();
}

struct Case {
  const char* name;
  bool sameProcess;
};

class AnyTransport : public testing::TestWithParam<Case> {
 protected:
  Process& other() { return GetParam().sameProcess ? first_ : second_; }
  PeerInfo left() const { return first_.rank(0); }
  PeerInfo right() { return other().rank(1); }
  Transport& at(Process& process) { return *pick(process.transports, left(), right()).value(); }

  Process first_{1};
  Process second_{2};
};

TEST_P(AnyTransport, IsTheOneForThePair) {
  EXPECT_EQ(at(first_).caps().name, GetParam().name);
  EXPECT_EQ(at(other()).caps().name, GetParam().name);
  EXPECT_TRUE(at(first_).caps().mapped);
  EXPECT_TRUE(at(first_).caps().needsOneHost);
  EXPECT_EQ(at(first_).caps().needsOneProcess, GetParam().sameProcess);
  EXPECT_EQ(at(first_).obstacle(left(), right()), "");
}

TEST_P(AnyTransport, MakesZeroedAlignedLinks) {
  const Listening listening = at(other()).listen(left(), right(), kGeometry).value();
  const wire::LinkView& view = listening.end->view();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.control) % kCacheLineBytes, 0u);
  EXPECT_EQ(view.geometry.slotCount, kGeometry.slotCount);
  EXPECT_EQ(view.geometry.slotBytes, kGeometry.slotBytes);
  const auto* bytes = reinterpret_cast<const unsigned char*>(view.control);
  for (size_t i = 0; i < wire::linkBytes(kGeometry); ++i) ASSERT_EQ(bytes[i], 0) << i;
}

TEST_P(AnyTransport, CarriesMessagesBothWays) {
  Listening forth = at(other()).listen(left(), right(), kGeometry).value();
  Listening back = at(first_).listen(right(), left(), kGeometry).value();
  const auto forthOut =
      awaitEnd(at(first_).connect(left(), right(), kGeometry, forth.offer)).value();
  const auto backOut =
      awaitEnd(at(other()).connect(right(), left(), kGeometry, back.offer)).value();
  bool partnerOk = false;
  std::thread partner(
      [&] { partnerOk = exchange(backOut->view(), forth.end->view(), false, 2000); });
  EXPECT_TRUE(exchange(forthOut->view(), back.end->view(), true, 2000));
  partner.join();
  EXPECT_TRUE(partnerOk);
}

TEST_P(AnyTransport, KeepsTheMemoryUntilBothSidesAreGone) {
  Listening listening = at(other()).listen(left(), right(), kGeometry).value();
  auto sender = awaitEnd(at(first_).connect(left(), right(), kGeometry, listening.offer)).value();
  listening.end->view().control->receiverFault.store(1);
  listening.end.reset();
  EXPECT_EQ(sender->view().control->receiverFault.load(), 1u);
  std::memset(sender->view().payload(1, kGeometry.slotBytes), 1, kGeometry.slotBytes);
}

TEST_P(AnyTransport, RefusesAnOfferTakenBefore) {
  Listening listening = at(other()).listen(left(), right(), kGeometry).value();
  const auto sender =
      awaitEnd(at(first_).connect(left(), right(), kGeometry, listening.offer)).value();
  EXPECT_EQ(
      awaitEnd(at(first_).connect(left(), right(), kGeometry, listening.offer)).takeStatus().code(),
      Code::kRemoteError);
}

TEST_P(AnyTransport, RefusesAnOfferWithdrawnByItsReceiver) {
  Listening listening = at(other()).listen(left(), right(), kGeometry).value();
  listening.end.reset();
  EXPECT_EQ(
      awaitEnd(at(first_).connect(left(), right(), kGeometry, listening.offer)).takeStatus().code(),
      Code::kRemoteError);
}

TEST_P(AnyTransport, RefusesAWrongToken) {
  Listening listening = at(other()).listen(left(), right(), kGeometry).value();
  for (size_t byte : {16u, 31u}) {
    Offer offer = listening.offer;
    offer[byte] ^= std::byte{1};
    EXPECT_EQ(awaitEnd(at(first_).connect(left(), right(), kGeometry, offer)).takeStatus().code(),
              Code::kRemoteError);
  }
  EXPECT_TRUE(awaitEnd(at(first_).connect(left(), right(), kGeometry, listening.offer)).ok());
}

TEST_P(AnyTransport, RefusesAnotherGeometryAndAnImpossibleOne) {
  Listening listening = at(other()).listen(left(), right(), kGeometry).value();
  const wire::LinkGeometry larger{.slotCount = 4, .slotBytes = 128};
  EXPECT_EQ(
      awaitEnd(at(first_).connect(left(), right(), larger, listening.offer)).takeStatus().code(),
      Code::kRemoteError);
  // An offer that lies about its geometry gets past the comparison, not past the look at the
  // memory.
  Offer lie = listening.offer;
  lie[4] = std::byte{4};
  EXPECT_EQ(awaitEnd(at(first_).connect(left(), right(), larger, lie)).takeStatus().code(),
            Code::kRemoteError);
  const wire::LinkGeometry impossible{.slotCount = 3, .slotBytes = 128};
  EXPECT_EQ(awaitEnd(at(first_).connect(left(), right(), impossible, listening.offer))
                .takeStatus()
                .code(),
            Code::kInternalError);
  EXPECT_EQ(at(other()).listen(left(), right(), impossible).takeStatus().code(),
            Code::kInternalError);
}

// Of links: what a leak would leave behind.
size_t mappingCount() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("tutti-link") != std::string::npos ? 1 : 0;
  return count;
}

TEST_P(AnyTransport, LeavesNoDescriptorsOrMappings) {
  const wire::LinkGeometry large{.slotCount = 8, .slotBytes = 1u << 20};
  const auto makeLinks = [&] {
    std::vector<std::unique_ptr<LinkEnd>> ends;
    for (int i = 0; i < 20; ++i) {
      Listening taken = at(other()).listen(left(), right(), large).value();
      Listening untaken = at(other()).listen(left(), right(), large).value();
      ends.push_back(awaitEnd(at(first_).connect(left(), right(), large, taken.offer)).value());
      ends.push_back(std::move(taken.end));
      ends.push_back(std::move(untaken.end));
    }
    EXPECT_EQ(mappingCount(), GetParam().sameProcess ? 0u : 60u);
  };
  makeLinks();
  const size_t before = openDescriptors();
  for (int i = 0; i < 5; ++i) makeLinks();
  EXPECT_LE(openDescriptors(), before + 1);  // the last connection may still be closing in the
                                             // hand-off's thread
  EXPECT_EQ(mappingCount(), 0u);
}

// Pages of the link that occupy memory.
size_t residentPages(const wire::LinkView& view) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(divideUp(wire::linkBytes(view.geometry), page));
  EXPECT_EQ(::mincore(view.control, wire::linkBytes(view.geometry), pages.data()), 0);
  return static_cast<size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char in) { return (in & 1) != 0; }));
}

TEST_P(AnyTransport, CostsNothingForUntouchedSlots) {
  const wire::LinkGeometry huge{.slotCount = 64, .slotBytes = wire::kMaxSlotBytes};
  Listening listening = at(other()).listen(left(), right(), huge).value();  // 1 GiB of addresses
  const auto sender = awaitEnd(at(first_).connect(left(), right(), huge, listening.offer)).value();
  sender->view().control->head.store(1);
  sender->view().payload(40, huge.slotBytes)[0] = std::byte{1};
  EXPECT_GE(residentPages(listening.end->view()), 1u);
  EXPECT_LE(residentPages(listening.end->view()), 1024u);  // two pages, or two huge ones
}

INSTANTIATE_TEST_SUITE_P(Kinds, AnyTransport,
                         testing::Values(Case{"local", true}, Case{"shm", false}),
                         [](const auto& kind) { return kind.param.name; });

TEST(ShmTransport, FailsSoonWhenNobodyHasTheName) {
  Process here(1);
  Process there(2);
  Transport& transport = *pick(here.transports, here.rank(0), there.rank(1)).value();
  Listening listening = pick(there.transports, here.rank(0), there.rank(1))
                            .value()
                            ->listen(here.rank(0), there.rank(1), kGeometry)
                            .value();
  PeerInfo stranger = there.rank(1);
  stranger.handoffName.fill('x');  // nor is it terminated
  EXPECT_EQ(awaitEnd(transport.connect(here.rank(0), stranger, kGeometry, listening.offer))
                .takeStatus()
                .code(),
            Code::kRemoteError);
}

void writeAll(int fd, const void* data, size_t bytes) {
  ASSERT_EQ(::send(fd, data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
}
bool readAll(int fd, void* data, size_t bytes) {
  return ::recv(fd, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

// The other process's part: offers a link, connects to ours, exchanges messages. Its exit code says
// which step failed.
int runChild(int fd) {
  Process self(2);
  PeerInfo parent;
  Offer offer;
  if (!readAll(fd, &parent, sizeof parent) || !readAll(fd, offer.data(), offer.size())) return 1;
  const PeerInfo me = self.rank(1);
  Result<Transport*> transport = pick(self.transports, parent, me);
  if (!transport.ok()) return 2;
  Result<Listening> listening = (*transport)->listen(parent, me, kGeometry);
  if (!listening.ok()) return 3;
  writeAll(fd, &me, sizeof me);
  writeAll(fd, listening->offer.data(), listening->offer.size());
  auto out = awaitEnd((*transport)->connect(me, parent, kGeometry, offer));
  if (!out.ok()) return 4;
  if (!exchange((*out)->view(), listening->end->view(), false, 2000)) return 5;
  char done = 0;
  return readAll(fd, &done, 1) ? 0 : 6;
}

TEST(ShmTransport, ConnectsTwoProcesses) {
  std::array<int, 2> ends;
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd here(ends[0]);
  UniqueFd there(ends[1]);
  const pid_t child = ::fork();  // before this process has threads
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(runChild(there.get()));
  there.reset();

  Process self(1);
  const PeerInfo me = self.rank(0);
  PeerInfo peer = me;  // enough to choose by; the child's own comes below
  peer.processHash = 2;
  Transport& transport = *pick(self.transports, peer, me).value();
  EXPECT_EQ(transport.caps().name, "shm");
  Listening back = transport.listen(peer, me, kGeometry).value();
  writeAll(here.get(), &me, sizeof me);
  writeAll(here.get(), back.offer.data(), back.offer.size());
  Offer offer;
  ASSERT_TRUE(readAll(here.get(), &peer, sizeof peer) &&
              readAll(here.get(), offer.data(), offer.size()));
  const auto forth = awaitEnd(transport.connect(me, peer, kGeometry, offer)).value();
  EXPECT_TRUE(exchange(forth->view(), back.end->view(), true, 2000));
  writeAll(here.get(), "!", 1);
  int outcome = 0;
  ASSERT_EQ(::waitpid(child, &outcome, 0), child);
  EXPECT_TRUE(WIFEXITED(outcome));
  EXPECT_EQ(WEXITSTATUS(outcome), 0);
}

TEST(ShmTransport, KeepsTheMemoryOfAProcessThatDied) {
  std::array<int, 2> ends;
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd here(ends[0]);
  UniqueFd there(ends[1]);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Process self(2);
    PeerInfo sender = self.rank(0);
    sender.processHash = 1;
    const PeerInfo me = self.rank(1);
    Result<Transport*> transport = pick(self.transports, sender, me);
    Result<Listening> listening = (*transport)->listen(sender, me, kGeometry);
    if (!listening.ok()) ::_exit(1);
    listening->end->view().payload(0, kGeometry.slotBytes)[0] = std::byte{9};
    writeAll(there.get(), &me, sizeof me);
    writeAll(there.get(), listening->offer.data(), listening->offer.size());
    char taken = 0;
    readAll(there.get(), &taken, 1);
    ::_exit(0);  // no destructor: the process is gone in mid-work
  }
  there.reset();
  Process self(1);
  PeerInfo peer;
  Offer offer;
  ASSERT_TRUE(readAll(here.get(), &peer, sizeof peer) &&
              readAll(here.get(), offer.data(), offer.size()));
  Transport& transport = *pick(self.transports, self.rank(0), peer).value();
  const auto end = awaitEnd(transport.connect(self.rank(0), peer, kGeometry, offer)).value();
  writeAll(here.get(), "!", 1);
  int outcome = 0;
  ASSERT_EQ(::waitpid(child, &outcome, 0), child);
  EXPECT_EQ(outcome, 0);
  EXPECT_EQ(end->view().payload(0, kGeometry.slotBytes)[0], std::byte{9});
  std::memset(end->view().payload(1, kGeometry.slotBytes), 5, kGeometry.slotBytes);
  EXPECT_EQ(awaitEnd(transport.connect(self.rank(0), peer, kGeometry, offer)).takeStatus().code(),
            Code::kRemoteError);
}

class Picking : public testing::Test {
 protected:
  std::string refusal(const Transports& transports) {
    Result<Transport*> picked = pick(transports, sender_, receiver_);
    return picked.ok() ? std::string((*picked)->caps().name)
                       : std::string(picked.takeStatus().message());
  }

  Process process_{1};
  PeerInfo sender_ = process_.rank(3);
  PeerInfo receiver_ = [this] {
    PeerInfo peer = process_.rank(5);
    peer.processHash = 2;
    return peer;
  }();
};

TEST_F(Picking, PrefersTheProcessOverTheHost) {
  EXPECT_EQ(refusal(process_.transports), "shm");
  receiver_.processHash = 1;
  EXPECT_EQ(refusal(process_.transports), "local");
}

TEST_F(Picking, TakesTheNetworkWhereMemoryCannotBeShared) {
  const Transport& shm = *process_.transports[1];
  receiver_.hostHash = 0xabcd;
  EXPECT_EQ(refusal(process_.transports), "net");
  EXPECT_NE(shm.obstacle(sender_, receiver_).find("000000000000abcd"), std::string::npos);
  receiver_.hostHash = sender_.hostHash;
  receiver_.userId = sender_.userId + 1;
  EXPECT_EQ(refusal(process_.transports), "net");
  EXPECT_NE(shm.obstacle(sender_, receiver_).find("other user"), std::string::npos);
  receiver_.userId = sender_.userId;
  receiver_.handoffName.fill('\0');
  EXPECT_EQ(refusal(process_.transports), "net");
  EXPECT_NE(shm.obstacle(sender_, receiver_).find("cannot hand out memory"), std::string::npos);
}

TEST_F(Picking, SaysWhyNoTransportConnectsThePair) {
  receiver_.rank = sender_.rank;
  receiver_.hostHash = 0xabcd;
  const std::string reasons = refusal(process_.transports);
  for (const char* part : {"rank 3", "local: other process", "shm: other host", "net: the same"}) {
    EXPECT_NE(reasons.find(part), std::string::npos) << reasons;
  }
}

TEST_F(Picking, ObeysTheSettingThatDisablesSharedMemory) {
  const Transports disabled = openTransports({.handoff = &process_.handoff, .shmDisabled = true});
  EXPECT_EQ(refusal(disabled), "net");
  EXPECT_NE(disabled[1]->obstacle(sender_, receiver_).find("NCCL_SHM_DISABLE=1"),
            std::string::npos);
  receiver_.processHash = sender_.processHash;
  EXPECT_EQ(refusal(disabled), "local");
}

TEST_F(Picking, NeedsAHandOffServiceToListen) {
  const Transports bare = openTransports({.handoff = nullptr});
  Transport& shm = *pick(bare, sender_, receiver_).value();
  EXPECT_EQ(shm.listen(sender_, receiver_, kGeometry).takeStatus().code(), Code::kInternalError);
}

}  // namespace
}  // namespace tutti::transport
