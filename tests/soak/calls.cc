#include "calls.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "random.h"
#include "values.h"

namespace tutti::soak {
namespace {

constexpr size_t kBandBytes = 128;
constexpr std::byte kBand{0xb5};
constexpr std::byte kPoison{0x7a};

}  // namespace

void Buffer::Free::operator()(std::byte* memory) const {
  if (fromLibrary) {
    static_cast<void>(ncclMemFree(memory));
  } else {
    std::free(memory);
  }
}

Buffer::Buffer(ncclDataType_t type, size_t elements, size_t shift, bool fromLibrary)
    : elementBytes_(sizeOf(type)),
      dataBytes_(elements * elementBytes_),
      totalBytes_(2 * kBandBytes + shift * elementBytes_ + dataBytes_),
      memory_(nullptr, Free{fromLibrary}) {
  void* memory = nullptr;
  if (!fromLibrary) {
    memory = std::malloc(totalBytes_);
  } else if (ncclMemAlloc(&memory, totalBytes_) != ncclSuccess) {
    memory = nullptr;
  }
  if (memory == nullptr) {
    std::fprintf(stderr, "no memory: %zu bytes, %s\n", totalBytes_, ncclGetLastError(nullptr));
    std::_Exit(1);
  }
  memory_.reset(static_cast<std::byte*>(memory));
  std::fill_n(memory_.get(), totalBytes_, kBand);
  data_ = memory_.get() + kBandBytes + shift * elementBytes_;
  std::fill_n(data_, dataBytes_, kPoison);
}

uint64_t Buffer::read(size_t element) const {
  return readElement(data_ + element * elementBytes_, elementBytes_);
}

void Buffer::write(size_t element, uint64_t bits) {
  writeElement(data_ + element * elementBytes_, elementBytes_, bits);
}

bool Buffer::isPoison(size_t element) const {
  const std::byte* begin = data_ + element * elementBytes_;
  return std::all_of(begin, begin + elementBytes_, [](std::byte b) { return b == kPoison; });
}

bool Buffer::isWhole() const {
  const auto isBand = [](std::byte b) { return b == kBand; };
  const std::byte* begin = memory_.get();
  const std::byte* data = data_;
  return std::all_of(begin, data, isBand) &&
         std::all_of(data + dataBytes_, begin + totalBytes_, isBand);
}

PendingCall::PendingCall(const Call& call, const Team& team, int place)
    : call_(call),
      teamSize_(team.size()),
      place_(place),
      inputCount_(inputCount(call, team.size(), place)),
      outputCount_(outputCount(call, team.size(), place)),
      inPlace_((call.inPlace && inputCount_ > 0 && outputCount_ > 0) || call.verb == Verb::kBcast ||
               (call.inPlace && call.verb == Verb::kBroadcast)) {
  // Some ranks give memory of the library, others their own: each kind must meet each.
  const uint64_t hash = mix(call.id + static_cast<uint64_t>(place));
  const size_t elements = inPlace_ ? std::max(inputCount_, outputCount_) : inputCount_;
  input_ = std::make_unique<Buffer>(call.type, elements, call.shift, hash % 4 == 0);
  if (!inPlace_)
    output_ = std::make_unique<Buffer>(call.type, std::max(outputCount_, call.count), call.shift,
                                       hash % 3 == 0);
  if (inPlace_ && inputCount_ != outputCount_ && inputCount_ > 0)
    ownAt_ = static_cast<size_t>(place) * call.count;
  const size_t from = inPlace_ && inputCount_ < outputCount_ ? ownAt_ : 0;
  for (size_t i = 0; i < inputCount_; ++i)
    input_->write(from + i, inputElement(call, teamSize_, place, i));
}

ncclResult_t PendingCall::exchange(ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = ncclGroupStart();
  size_t sendAt = 0;
  size_t receiveAt = 0;
  for (int peer = 0; peer < teamSize_ && result == ncclSuccess; ++peer) {
    const size_t sent = exchangeCount(call_, place_, peer);
    const size_t received = exchangeCount(call_, peer, place_);
    if (sent > 0) result = ncclSend(input_->at(sendAt), sent, call_.type, peer, comm, stream);
    if (received > 0 && result == ncclSuccess)
      result = ncclRecv(output_->at(receiveAt), received, call_.type, peer, comm, stream);
    sendAt += sent;
    receiveAt += received;
  }
  const ncclResult_t end = ncclGroupEnd();
  return result != ncclSuccess ? result : end;
}

ncclResult_t PendingCall::issue(ncclComm_t comm, cudaStream_t stream) {
  const bool inputIsPart = inPlace_ && inputCount_ < outputCount_;
  const bool outputIsPart = inPlace_ && inputCount_ > outputCount_;
  const void* in = input_->at(inputIsPart ? ownAt_ : 0);
  void* out = inPlace_ ? input_->at(outputIsPart ? ownAt_ : 0) : output_->at(0);
  const size_t count = call_.count;
  const ncclDataType_t type = call_.type;
  ncclRedOp_t op = static_cast<ncclRedOp_t>(call_.fold);
  const bool folds = call_.verb == Verb::kAllReduce || call_.verb == Verb::kReduce ||
                     call_.verb == Verb::kReduceScatter;
  const bool hasOwnOp = folds && call_.fold == Fold::kPreMulSum;
  if (hasOwnOp) {
    uint64_t scalar = scalarOf(call_, place_);
    const ncclResult_t made =
        ncclRedOpCreatePreMulSum(&op, &scalar, type, ncclScalarHostImmediate, comm);
    if (made != ncclSuccess) return made;
  }
  ncclResult_t result = ncclInternalError;
  switch (call_.verb) {
    case Verb::kAllReduce: result = ncclAllReduce(in, out, count, type, op, comm, stream); break;
    case Verb::kReduce:
      result = ncclReduce(in, out, count, type, op, call_.root, comm, stream);
      break;
    case Verb::kBroadcast:
      result = ncclBroadcast(in, out, count, type, call_.root, comm, stream);
      break;
    case Verb::kBcast: result = ncclBcast(out, count, type, call_.root, comm, stream); break;
    case Verb::kAllGather: result = ncclAllGather(in, out, count, type, comm, stream); break;
    case Verb::kReduceScatter:
      result = ncclReduceScatter(in, out, count, type, op, comm, stream);
      break;
    case Verb::kAlltoAll: result = ncclAlltoAll(in, out, count, type, comm, stream); break;
    case Verb::kGather: result = ncclGather(in, out, count, type, call_.root, comm, stream); break;
    case Verb::kScatter:
      result = ncclScatter(in, out, count, type, call_.root, comm, stream);
      break;
    case Verb::kExchange: result = exchange(comm, stream); break;
  }
  if (hasOwnOp && result == ncclSuccess) result = ncclRedOpDestroy(op, comm);
  return result;
}

std::string PendingCall::wrong(const char* what, size_t i, uint64_t got, uint64_t wanted) const {
  char numbers[160];
  std::snprintf(numbers, sizeof numbers, " %zu at place %d of %d is %#llx, wanted %#llx", i, place_,
                teamSize_, static_cast<unsigned long long>(got),
                static_cast<unsigned long long>(wanted));
  return describe(call_) + ": " + what + numbers;
}

std::string PendingCall::check() {
  Buffer& out = inPlace_ ? *input_ : *output_;
  const size_t first = inPlace_ && inputCount_ > outputCount_ ? ownAt_ : 0;
  for (size_t i = 0; i < outputCount_; ++i) {
    const uint64_t got = out.read(first + i);
    uint64_t wanted = 0;
    if (!isRight(call_, teamSize_, place_, i, got, wanted))
      return wrong("output element", i, got, wanted);
  }
  if (!inPlace_) {
    for (size_t i = 0; i < inputCount_; ++i) {
      const uint64_t wanted = inputElement(call_, teamSize_, place_, i);
      if (input_->read(i) != wanted) return wrong("input element", i, input_->read(i), wanted);
    }
    for (size_t i = outputCount_; i < std::max(outputCount_, call_.count); ++i) {
      if (!output_->isPoison(i)) return wrong("unused element", i, output_->read(i), 0);
    }
    if (!output_->isWhole()) return wrong("a byte around the output", 0, 0, 0);
  }
  if (!input_->isWhole()) return wrong("a byte around the input", 0, 0, 0);
  return {};
}

}  // namespace tutti::soak
