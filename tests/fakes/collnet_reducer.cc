// Reduces for the collective-network plug-in for tests, as a switch or its daemon would: one
// process for any number of groups, one thread.
//
//   collnet_reducer [address [reductions [stop]]]
//
// It listens at the address (127.0.0.1), says "PORT" and ends when its standard input does; after
// so many reductions it dies, or, with "stop", does nothing more and keeps its connections.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collnet_frames.h"
#include "kernels/kernels.h"
#include "wire/types.h"

namespace {

using Bytes = std::vector<std::byte>;
using GroupName = std::array<unsigned char, 16>;

struct Group;
struct Member {
  int fd = -1;
  Group* group = nullptr;  // once it has said hello
  Bytes in;
  Bytes out;
  bool isGone = false;

  // The part at the front, once it is whole.
  const CollnetFrame* frame() const {
    if (in.size() < sizeof(CollnetFrame)) return nullptr;
    const auto* frame = reinterpret_cast<const CollnetFrame*>(in.data());
    return in.size() < sizeof(CollnetFrame) + frame->bytes ? nullptr : frame;
  }
};

struct Group {
  std::vector<Member*> members;
  size_t present = 0;
  bool isComplete() const { return present == members.size(); }
};

void append(Bytes& to, const void* data, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  to.insert(to.end(), from, from + bytes);
}

class Reducer {
 public:
  Reducer(int listener, long most, bool stops) : listener_(listener), most_(most), stops_(stops) {}

  void serve() {
    for (;;) {
      std::vector<pollfd> waits{{STDIN_FILENO, POLLIN, 0}, {listener_, POLLIN, 0}};
      for (const auto& member : members_) {
        const short events = static_cast<short>(POLLIN | (member->out.empty() ? 0 : POLLOUT));
        waits.push_back({member->fd, events, 0});
      }
      if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return;
      if (waits[0].revents != 0) return;
      for (size_t i = 2; i < waits.size(); ++i) {
        if (waits[i].revents != 0) attend(*members_[i - 2]);
      }
      if (waits[1].revents != 0) accept();
      dropGone();
    }
  }

 private:
  void accept() {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    members_.push_back(std::make_unique<Member>());
    members_.back()->fd = fd;
  }

  void attend(Member& member) {
    std::array<std::byte, 1 << 16> buffer;
    for (;;) {
      const ssize_t count = ::recv(member.fd, buffer.data(), buffer.size(), 0);
      if (count > 0) {
        append(member.in, buffer.data(), static_cast<size_t>(count));
        continue;
      }
      if (count == 0 || (errno != EAGAIN && errno != EINTR)) member.isGone = true;
      break;
    }
    if (member.group == nullptr) join(member);
    if (member.group != nullptr) reduce(*member.group);
    flush(member);
  }

  void join(Member& member) {
    CollnetHello hello;
    if (member.in.size() < sizeof hello) return;
    std::memcpy(&hello, member.in.data(), sizeof hello);
    member.in.erase(member.in.begin(), member.in.begin() + sizeof hello);
    constexpr uint32_t kMostMembers = 4096;
    if (hello.magic != kCollnetMagic || hello.members > kMostMembers ||
        hello.member >= hello.members) {
      member.isGone = true;
      return;
    }
    GroupName name;
    std::memcpy(name.data(), hello.group, name.size());
    Group& group = groups_[name];
    group.members.resize(hello.members);
    group.members[hello.member] = &member;
    member.group = &group;
    if (++group.present < hello.members) return;
    const std::byte complete{1};
    for (Member* each : group.members) {
      append(each->out, &complete, 1);
      flush(*each);
    }
  }

  // While all members have handed in their next part.
  void reduce(Group& group) {
    while (group.isComplete() && std::ranges::all_of(group.members, [](const Member* each) {
             return each != nullptr && each->frame() != nullptr;
           })) {
      CollnetFrame frame = *group.members.front()->frame();
      Bytes result;
      frame.status = work(group, frame, result) ? 0 : 1;
      if (frame.status != 0) result.clear();
      const bool isShared = frame.work == kCollnetScatter;
      const size_t bytes = isShared ? result.size() / group.members.size() : result.size();
      frame.bytes = static_cast<uint32_t>(bytes);
      for (size_t member = 0; member < group.members.size(); ++member) {
        Member& each = *group.members[member];
        const size_t used = sizeof frame + each.frame()->bytes;
        each.in.erase(each.in.begin(), each.in.begin() + static_cast<ptrdiff_t>(used));
        append(each.out, &frame, sizeof frame);
        append(each.out, result.data() + (isShared ? member * bytes : 0), bytes);
        flush(each);
      }
      if (--most_ != 0) continue;
      if (!stops_) ::_exit(3);
      for (;;) ::pause();
    }
  }

  // What the members' parts make together; false: they do not fit.
  static bool work(const Group& group, const CollnetFrame& frame, Bytes& result) {
    for (const Member* each : group.members) {
      const CollnetFrame& other = *each->frame();
      if (other.bytes != frame.bytes || other.type != frame.type || other.op != frame.op ||
          other.work != frame.work)
        return false;
      if (frame.work == kCollnetGather) append(result, each->in.data() + sizeof frame, frame.bytes);
    }
    return frame.work == kCollnetGather || fold(group, frame, result);
  }

  static bool fold(const Group& group, const CollnetFrame& frame, Bytes& result) {
    using tutti::DataType, tutti::kDataTypeCount, tutti::ReduceOp;
    std::vector<const void*> sources;
    for (const Member* each : group.members) sources.push_back(each->in.data() + sizeof frame);
    if (frame.type >= kDataTypeCount || frame.op > static_cast<int>(ReduceOp::kMin)) return false;
    const auto type = static_cast<DataType>(frame.type);
    result.resize(frame.bytes);
    void* destination = result.data();
    tutti::kernels::fold({.type = type, .op = static_cast<ReduceOp>(frame.op)},
                         {.sources = sources,
                          .destinations = {&destination, 1},
                          .elementCount = frame.bytes / tutti::sizeOf(type)});
    return true;
  }

  void flush(Member& member) {
    while (!member.out.empty() && !member.isGone) {
      const ssize_t count = ::send(member.fd, member.out.data(), member.out.size(), MSG_NOSIGNAL);
      if (count > 0) {
        member.out.erase(member.out.begin(), member.out.begin() + count);
        continue;
      }
      if (errno == EAGAIN) return;
      if (errno != EINTR) member.isGone = true;
    }
  }

  // With a member its group ends, for all of them.
  void dropGone() {
    for (const auto& member : members_) {
      if (!member->isGone || member->group == nullptr) continue;
      for (Member* each : member->group->members) {
        if (each != nullptr) each->isGone = true;
      }
    }
    std::erase_if(groups_, [](const auto& group) {
      return std::ranges::any_of(
          group.second.members, [](const Member* each) { return each != nullptr && each->isGone; });
    });
    std::erase_if(members_, [](const auto& member) {
      if (member->isGone) ::close(member->fd);
      return member->isGone;
    });
  }

  const int listener_;
  long most_;
  const bool stops_;
  std::vector<std::unique_ptr<Member>> members_;
  std::map<GroupName, Group> groups_;
};

}  // namespace

int main(int argc, char** argv) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::inet_pton(AF_INET, argc > 1 ? argv[1] : "127.0.0.1", &address.sin_addr) != 1 ||
      ::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener, 64) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    fmt::print(stderr, "collnet_reducer: {}\n", std::strerror(errno));
    return 1;
  }
  fmt::print("{}\n", ntohs(address.sin_port));
  std::fflush(stdout);
  Reducer(listener, argc > 2 ? std::atol(argv[2]) : 0, argc > 3 && std::string(argv[3]) == "stop")
      .serve();
  return 0;
}
