#include "net/verbs/flusher.h"

#include <array>
#include <cerrno>

namespace tutti::net::verbs {

Result<std::unique_ptr<Flusher>> Flusher::open(const Options& options) {
  std::unique_ptr<Flusher> flusher(new Flusher);
  const QueuePairs::Needs needs{.count = options.roads.size(), .sends = 1, .receives = 1};
  TUTTI_TRY_ASSIGN(flusher->pairs_,
                   QueuePairs::open(options.library, {options.roads.begin(), options.roads.end()},
                                    needs, flusher->alarm_));
  for (const Road& road : options.roads) {
    TUTTI_TRY_ASSIGN(auto landing, road.adapter->registrations().registerOrdered(flusher->landed_));
    flusher->landings_.push_back(std::move(landing));
  }
  LaneTerms self;
  self.packetNumber = options.packetNumber;
  flusher->pairs_.describe(self);
  TUTTI_TRY(flusher->pairs_.connect(options.library, options.settings,
                                    {.own = self,
                                     .peer = self,
                                     .serviceLevel = options.settings.serviceLevel.value_or(0),
                                     .isRead = true}));
  return flusher;
}

Status Flusher::start(const std::byte* byte, std::span<::ibv_mr* const> regions) {
  for (size_t i = 0; i < pairs_.count(); ++i) {
    ::ibv_sge place{
        .addr = reinterpret_cast<uintptr_t>(&landed_[i]), .length = 1, .lkey = landings_[i]->lkey};
    ::ibv_send_wr request{};
    request.sg_list = &place;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_READ;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {.remote_addr = reinterpret_cast<uintptr_t>(byte), .rkey = regions[i]->rkey};
    ::ibv_send_wr* refused = nullptr;
    TUTTI_TRY(check(::ibv_post_send(pairs_[i], &request, &refused), "ibv_post_send of a flush",
                    pairs_.roadOf(i).port->name));
    ++openCount_;
  }
  return {};
}

Result<bool> Flusher::poll() {
  for (size_t i = 0; i < pairs_.queues().size(); ++i) {
    std::array<::ibv_wc, 1> completion;
    const int count = ::ibv_poll_cq(pairs_.queues()[i].get(), 1, completion.data());
    if (count < 0) return check(EIO, "ibv_poll_cq", pairs_.roads()[i].port->name);
    if (count == 0) continue;
    if (completion[0].status != IBV_WC_SUCCESS) {
      return Status(Code::kSystemError, fmt::format("a flush over {} ended with status {}",
                                                    pairs_.roads()[i].port->name,
                                                    static_cast<int>(completion[0].status)));
    }
    --openCount_;
  }
  return openCount_ == 0;
}

}  // namespace tutti::net::verbs
