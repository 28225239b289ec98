#include "net/ofi/ofi_lane.h"

#include <algorithm>
#include <cstdlib>

namespace tutti::net::ofi {
namespace {

// A name for memory that the provider does not want to know of.
constexpr char kUnregistered = 0;

}  // namespace

Result<std::unique_ptr<OfiLane>> OfiLane::open(const Library& library, const Device& device,
                                               uint64_t tag) {
  std::unique_ptr<OfiLane> lane(new OfiLane(library, device, tag));
  TUTTI_TRY(lane->openEndpoint());
  TUTTI_TRY_ASSIGN(lane->greetingMemory_, lane->enroll(lane->greeting_));
  return lane;
}

OfiLane::~OfiLane() {
  endpoint_.reset();
  if (greetingMemory_.name != nullptr) release(greetingMemory_);
}

Status OfiLane::openEndpoint() {
  ::fid_cq* queue = nullptr;
  ::fi_cq_attr queueAttributes{};
  queueAttributes.format = FI_CQ_FORMAT_TAGGED;
  queueAttributes.size = 2 * operations_.size();
  TUTTI_TRY(library_.check(::fi_cq_open(device_.domain.get(), &queueAttributes, &queue, nullptr),
                           "fi_cq_open"));
  queue_.reset(queue);
  ::fid_av* addresses = nullptr;
  ::fi_av_attr addressAttributes{};
  addressAttributes.type = FI_AV_UNSPEC;
  addressAttributes.count = 1;
  TUTTI_TRY(library_.check(
      ::fi_av_open(device_.domain.get(), &addressAttributes, &addresses, nullptr), "fi_av_open"));
  addresses_.reset(addresses);
  ::fid_ep* endpoint = nullptr;
  TUTTI_TRY(library_.check(
      ::fi_endpoint(device_.domain.get(), device_.info.get(), &endpoint, nullptr), "fi_endpoint"));
  endpoint_.reset(endpoint);
  TUTTI_TRY(library_.check(::fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV),
                           "fi_ep_bind of the queue"));
  TUTTI_TRY(library_.check(::fi_ep_bind(endpoint, &addresses->fid, 0),
                           "fi_ep_bind of the address vector"));
  return library_.check(::fi_enable(endpoint), "fi_enable");
}

Result<size_t> OfiLane::address(std::span<std::byte> place) const {
  size_t bytes = place.size();
  TUTTI_TRY(library_.check(::fi_getname(&endpoint_->fid, place.data(), &bytes), "fi_getname"));
  return bytes;
}

Status OfiLane::aimAt(std::span<const std::byte> address) {
  isSender_ = true;
  const int inserted = ::fi_av_insert(addresses_.get(), address.data(), 1, &peer_, 0, nullptr);
  if (inserted == 1) return {};
  return library_.check(inserted < 0 ? inserted : -FI_EINVAL, "fi_av_insert");
}

Result<bool> OfiLane::greet() {
  if (!greetingRequest_) {
    TUTTI_TRY_ASSIGN(greetingRequest_, post(greeting_, greetingMemory_));
    if (!greetingRequest_) return false;
  }
  TUTTI_TRY_ASSIGN(const std::optional<size_t> bytes, test(greetingRequest_));
  return bytes.has_value();
}

Result<Lane::Memory> OfiLane::enroll(std::span<std::byte> memory) {
  if (!device_.registersMemory) return Memory{const_cast<char*>(&kUnregistered)};
  ::fid_mr* region = nullptr;
  TUTTI_TRY(library_.check(::fi_mr_reg(device_.domain.get(), memory.data(), memory.size(),
                                       FI_SEND | FI_RECV, 0, 0, 0, &region, nullptr),
                           "fi_mr_reg"));
  return Memory{region};
}

void OfiLane::release(Memory memory) {
  if (device_.registersMemory) Close{}(static_cast<::fid_mr*>(memory.name));
}

OfiLane::Operation* OfiLane::freeOperation() {
  const auto found =
      std::ranges::find_if(operations_, [](const Operation& each) { return !each.isUsed; });
  return found == operations_.end() ? nullptr : &*found;
}

Result<Lane::Request> OfiLane::post(std::span<std::byte> bytes, Memory memory) {
  Operation* operation = freeOperation();
  if (operation == nullptr) return Request{};
  *operation = {.isUsed = true, .bytes = bytes.size()};
  void* descriptor =
      device_.registersMemory ? ::fi_mr_desc(static_cast<::fid_mr*>(memory.name)) : nullptr;
  const ssize_t result = isSender_
                             ? ::fi_tsend(endpoint_.get(), bytes.data(), bytes.size(), descriptor,
                                          peer_, tag_, &operation->context)
                             : ::fi_trecv(endpoint_.get(), bytes.data(), bytes.size(), descriptor,
                                          FI_ADDR_UNSPEC, tag_, 0, &operation->context);
  if (result == 0) return Request{operation};
  operation->isUsed = false;
  if (result != -FI_EAGAIN) return library_.check(result, isSender_ ? "fi_tsend" : "fi_trecv");
  TUTTI_TRY(readCompletions());  // which also makes the connection, and room
  return Request{};
}

Result<std::optional<size_t>> OfiLane::test(Request request) {
  auto& operation = *static_cast<Operation*>(request.name);
  if (!operation.isDone) TUTTI_TRY(readCompletions());
  if (!operation.isDone) return std::optional<size_t>();
  operation.isUsed = false;
  if (operation.error != 0)
    return library_.check(-operation.error, isSender_ ? "a send" : "a receive");
  return std::optional<size_t>(operation.bytes);
}

Status OfiLane::readCompletions() {
  std::array<::fi_cq_tagged_entry, 8> entries;
  const ssize_t count = ::fi_cq_read(queue_.get(), entries.data(), entries.size());
  if (count == -FI_EAGAIN) return {};
  if (count == -FI_EAVAIL) return readFailure();
  TUTTI_TRY(library_.check(count, "fi_cq_read"));
  for (const auto& entry : std::span(entries).first(static_cast<size_t>(count))) {
    auto& operation = *static_cast<Operation*>(entry.op_context);
    operation.isDone = true;
    if (!isSender_) operation.bytes = entry.len;
  }
  return {};
}

// Kept with its request: one that completed before it is still good.
Status OfiLane::readFailure() {
  ::fi_cq_err_entry entry{};
  const ssize_t count = ::fi_cq_readerr(queue_.get(), &entry, 0);
  if (count == -FI_EAGAIN) return {};
  TUTTI_TRY(library_.check(count, "fi_cq_readerr"));
  // Positive, says the manual; shm of libfabric 1.17 tells a receive that is too short below 0.
  const int error = entry.err == 0 ? FI_EOTHER : std::abs(entry.err);
  auto* operation = static_cast<Operation*>(entry.op_context);
  if (operation == nullptr) return library_.check(-error, "the completion queue");
  operation->isDone = true;
  operation->error = error;
  return {};
}

}  // namespace tutti::net::ofi
