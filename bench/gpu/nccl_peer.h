// Another libnccl.so.2, loaded beside us, as the peer to compare with.
#pragma once

#include <memory>
#include <string>

#include "team.h"

namespace tutti::bench {

class NcclPeer {
 public:
  // One communicator over the team's ranks; they need a GPU each.
  static std::unique_ptr<NcclPeer> open(Team& team, const std::string& path);
  ~NcclPeer();
  int version() const;
  void launch(Member& member, const Job& job);
  void exchange(Member& member, const void* from, void* to, uint64_t bytes);

 private:
  struct Calls;
  explicit NcclPeer(std::unique_ptr<Calls> calls);
  std::unique_ptr<Calls> calls_;
  std::vector<void*> communicators_;
};

}  // namespace tutti::bench
