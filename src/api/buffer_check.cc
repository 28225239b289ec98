#include "api/buffer_check.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/memory_map.h"
#include "base/uncancelled.h"
#include "plan/plan.h"

namespace tutti::api {
namespace {

struct Buffer {
  std::string_view name;
  uintptr_t from = 0;
  size_t bytes = 0;
  MemoryUse use = MemoryUse::kRead;
};

const void* pointerTo(uintptr_t address) { return reinterpret_cast<const void*>(address); }

Status checkAlignment(const Buffer& buffer, DataType type) {
  if (buffer.from % sizeOf(type) == 0) return {};
  return invalidArgument("{} {} is not aligned to the {} bytes of an element of {}", buffer.name,
                         pointerTo(buffer.from), sizeOf(type), name(type));
}

std::string_view textOf(MemoryFault::Reason reason) {
  switch (reason) {
    case MemoryFault::Reason::kUnmapped: return "there is no memory (is it freed, or too short?)";
    case MemoryFault::Reason::kUnreadable:
      return "memory cannot be read (does it belong to a GPU, or is it protected?)";
    case MemoryFault::Reason::kReadOnly: return "memory can only be read";
  }
  return "";
}

Status checkMemory(const Buffer& buffer, std::string_view map) {
  const auto fault = findFault(map, buffer.from, buffer.bytes, buffer.use);
  if (!fault) return {};
  return invalidArgument("{} {} of {} bytes cannot be {}: at byte {} {}", buffer.name,
                         pointerTo(buffer.from), buffer.bytes,
                         buffer.use == MemoryUse::kRead ? "read" : "written",
                         fault->at - buffer.from, textOf(fault->reason));
}

// Where the output of a call in place begins, in blocks behind its input; none: there is no such
// call.
std::optional<int64_t> placeOf(Collective collective, int64_t rank) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast: return 0;
    case Collective::kReduceScatter:
    case Collective::kScatter: return rank;
    case Collective::kAllGather:
    case Collective::kGather: return -rank;
    case Collective::kAllToAll:
    case Collective::kSend:
    case Collective::kRecv: return std::nullopt;
  }
  return std::nullopt;
}

// What is written to one may not change the other, unless the call is in place as nccl.h has it.
Status checkOverlap(const Buffer& input, const Buffer& output, const launch::Call& call,
                    Rank rank) {
  if (input.bytes == 0 || output.bytes == 0) return {};
  const bool isApart =
      input.from + input.bytes <= output.from || output.from + output.bytes <= input.from;
  if (isApart) return {};
  const std::optional<int64_t> place = placeOf(call.shape.collective, index(rank));
  if (!place) {
    return invalidArgument(
        "sendbuff {} of {} bytes and recvbuff {} of {} bytes overlap; this call is never in place",
        call.input, input.bytes, static_cast<const void*>(call.output), output.bytes);
  }
  const int64_t wanted = *place * static_cast<int64_t>(launch::bytesOf(call));
  if (static_cast<int64_t>(output.from - input.from) == wanted) return {};
  return invalidArgument(
      "sendbuff {} of {} bytes and recvbuff {} of {} bytes overlap; in place on rank {} recvbuff "
      "is sendbuff {:+d} bytes",
      call.input, input.bytes, static_cast<const void*>(call.output), output.bytes, index(rank),
      wanted);
}

}  // namespace

Status checkBuffers(const launch::Call& call, const comm::Communicator& communicator) {
  const Uncancelled held;
  plan::BufferBytes bytes = plan::bufferBytes(call.shape, communicator.agreement());
  // Of a rank that sends to itself, each call brings a half.
  if (call.shape.collective == Collective::kSend) bytes.output = 0;
  if (call.shape.collective == Collective::kRecv) bytes.input = 0;
  const Buffer input{"sendbuff", reinterpret_cast<uintptr_t>(call.input), bytes.input,
                     MemoryUse::kRead};
  const Buffer output{"recvbuff", reinterpret_cast<uintptr_t>(call.output), bytes.output,
                      MemoryUse::kWrite};
  const std::string map = readMemoryMap();
  for (const Buffer* buffer : {&input, &output}) {
    if (buffer->bytes == 0) continue;
    TUTTI_TRY(checkAlignment(*buffer, call.shape.type));
    // Where the list cannot be read, nothing is known.
    if (!map.empty()) TUTTI_TRY(checkMemory(*buffer, map));
  }
  return checkOverlap(input, output, call, communicator.rank());
}

}  // namespace tutti::api
