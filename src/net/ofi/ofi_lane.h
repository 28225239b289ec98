// A lane over an endpoint of its own, with a completion queue of its own: what one lane's thread
// does concerns no other, and once the endpoint is closed nobody touches the lane's memory.
// Messages carry a random tag that the receiving end made, so that strangers' go nowhere.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "net/fabric.h"
#include "net/ofi/library.h"

namespace tutti::net::ofi {

// One adapter, as one of libfabric's domains. Outlives its lanes.
struct Device {
  Info info;
  Owned<::fid_fabric> fabric;
  Owned<::fid_domain> domain;
  bool registersMemory = false;
};

class OfiLane final : public Lane {
 public:
  static Result<std::unique_ptr<OfiLane>> open(const Library& library, const Device& device,
                                               uint64_t tag);
  ~OfiLane() override;

  // The receiving end's address, as the sender is to be told it.
  Result<size_t> address(std::span<std::byte> place) const;
  // Makes this a sending end.
  Status aimAt(std::span<const std::byte> address);
  // The first message, sent and awaited by the lane itself: it shows that there is a way, and both
  // ends' queues work. True when it is through.
  Result<bool> greet();

  Result<Memory> enroll(std::span<std::byte> memory) override;
  void release(Memory memory) override;
  Result<Request> post(std::span<std::byte> bytes, Memory memory) override;
  Result<std::optional<size_t>> test(Request request) override;
  CallNames callNames() const override {
    return {.enroll = "fi_mr_reg",
            .post = isSender_ ? "fi_tsend" : "fi_trecv",
            .test = "fi_cq_read",
            .close = "fi_close"};
  }

 private:
  // What the provider gives back of a request; its own words come first.
  struct Operation {
    ::fi_context2 context{};
    bool isUsed = false;
    bool isDone = false;
    size_t bytes = 0;
    int error = 0;
  };

  OfiLane(const Library& library, const Device& device, uint64_t tag)
      : library_(library), device_(device), tag_(tag) {}
  Status openEndpoint();
  Status readCompletions();
  Status readFailure();
  Operation* freeOperation();

  const Library& library_;
  const Device& device_;
  const uint64_t tag_;
  bool isSender_ = false;
  ::fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::array<Operation, kMaxRequests + 1> operations_;

  std::array<std::byte, 8> greeting_{};
  Memory greetingMemory_;
  Request greetingRequest_;

  // The endpoint goes first: it is bound to the others.
  Owned<::fid_cq> queue_;
  Owned<::fid_av> addresses_;
  Owned<::fid_ep> endpoint_;
};

}  // namespace tutti::net::ofi
