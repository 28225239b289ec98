#include "launch/gpu_batch.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/fnv.h"
#include "base/log.h"

namespace tutti::launch {
namespace {

constexpr uintptr_t kVectorBytes = 16;  // of a kernel's store
// In the signature of calls that go by copy engines, which are cut up otherwise.
constexpr uint32_t kOfEngines = 0x2a5a'3c96;

// Equal on all ranks that call the same; a send and its receive have that of the transfer.
uint32_t signatureOf(const Call& call) {
  const bool isTransfer = isPointToPoint(call);
  Fnv hash;
  hash.add(isTransfer ? 0xffu : static_cast<uint64_t>(call.shape.collective));
  hash.add(static_cast<uint64_t>(call.shape.type));
  hash.add(isReduction(call.shape.collective) ? static_cast<uint64_t>(call.shape.op) : 0);
  hash.add(hasRoot(call.shape.collective) ? static_cast<uint64_t>(index(call.shape.peer)) : 0);
  hash.add(call.shape.count);
  return static_cast<uint32_t>(hash.value() ^ hash.value() >> 32) & ~wire::kGpuShares;
}

// Of calls whose blocks are worth saving; some are shorter than what goes in parts apart.
constexpr uint64_t kLongBytes = uint64_t{1} << 20;

}  // namespace

GpuBatcher::GpuBatcher(const wire::GpuView& view, const Limits& limits,
                       const wire::GpuProgramView& programs)
    : limits_(limits), chooser_(limits), programView_(programs) {
  launch_.view = view;
  transfers_.view = engines_.gate.view = engines_.own.view = view;
  if (!isForPrograms()) return;
  programTransfers_ = std::make_unique<wire::GpuProgramTransfers>();
  programTransfers_->view = programs;
}

void GpuBatcher::askWhetherToSave(Saves saves) {
  if (chooser_.isFree()) saves_ = std::move(saves);
}

Status GpuBatcher::build(std::span<const StreamCall> calls, const Find& find, const Emit& emit,
                         const FindInWindow& findInWindow) {
  find_ = &find;
  findInWindow_ = &findInWindow;
  launch_.callCount = launch_.reachCount = 0;
  bool hasTransfers = false;
  for (const StreamCall& item : calls) {
    if (isPointToPoint(*item.call)) {
      hasTransfers = true;
    } else if (item.call->shape.count != 0) {
      TUTTI_TRY(addCollective(*item.call, emit));
    }
  }
  TUTTI_TRY(flush(emit));
  bool isMore = hasTransfers;
  for (int32_t round = 0; isMore; ++round) {
    TUTTI_TRY_ASSIGN(isMore, transferRound(calls, round, emit));
  }
  return {};
}

// Whether peers can write to the output, which has a block of each, and where they have it.
bool GpuBatcher::findReach(const Call& call, wire::GpuReach& reach) const {
  const uint64_t bytes = bytesOf(call) * static_cast<uint64_t>(limits_.rankCount);
  if (!(*find_)(call.output, bytes, reach)) return false;
  const auto address = reinterpret_cast<uintptr_t>(call.output);
  if (address % kVectorBytes != 0) return false;
  // In place, peers would write what is still to be sent.
  const auto input = reinterpret_cast<uintptr_t>(call.input);
  const bool overlaps = input < address + bytes && address < input + bytes;
  return call.shape.collective != Collective::kAllToAll || !overlaps;
}

Status GpuBatcher::addCollective(const Call& call, const Emit& emit) {
  if (saves_ && plan::vectorBytes(call.shape, limits_.rankCount) >= kLongBytes)
    chooser_.saveBlocks(saves_());
  const GpuChooser::Decision decision = chooser_.decisionFor(call.shape);
  if (decision.program) return addProgram(call, decision, emit);
  const kernels::cuda::GpuRequest& request = decision.request;
  if (kernels::cuda::goesByEngines(request)) {
    TUTTI_TRY_ASSIGN(const bool isTaken, addByEngines(call, request, emit));
    if (isTaken) return {};
  }
  if (kernels::cuda::goesAsTransfers(request)) return addParts(call, request, emit);
  auto choice = kernels::cuda::choose(request);
  if (!choice) {
    return invalidUsage("{} among {} GPU ranks: this build's kernels take up to {}",
                        name(call.shape.collective), limits_.rankCount, wire::kGpuProgramRanks);
  }
  wire::GpuReach reach{};
  const auto sharing = kernels::cuda::choiceThatShares(request, *choice);
  const bool isReached = sharing.has_value() && findReach(call, reach);
  if (isReached) choice = sharing;
  const bool fits = launch_.callCount < wire::kGpuMaxCalls &&
                    (!isReached || launch_.reachCount < wire::kGpuMaxReaches) &&
                    (launch_.callCount == 0 ||
                     (choice->image == choice_.image && choice->kernel == choice_.kernel &&
                      choice->isBulk == choice_.isBulk));
  if (!fits) TUTTI_TRY(flush(emit));
  const bool startsEarly = choice->startsEarly && (launch_.callCount == 0 || choice_.startsEarly);
  if (launch_.callCount == 0) {
    blocks_ = nextBlock_ = 0;
    launch_.isBulk = choice->isBulk ? 1 : 0;
  }
  if (!kernels::cuda::mayGoByBulk(request, call.input, call.output)) launch_.isBulk = 0;
  choice_ = *choice;
  choice_.startsEarly = startsEarly;
  // In blocks of its own while there are some, so that it need not wait for the calls before.
  const bool isBeside =
      nextBlock_ + choice->blocks <= kernels::cuda::blocksBeside(*choice, request);
  const int32_t firstBlock = isBeside ? nextBlock_ : 0;
  nextBlock_ = firstBlock + choice->blocks;
  blocks_ = std::max(blocks_, nextBlock_);
  wire::GpuCall& next = launch_.calls[launch_.callCount++];
  next = kernels::cuda::makeCall(request, *choice);
  next.input = call.input;
  next.output = call.output;
  next.root = static_cast<int8_t>(index(call.shape.peer));
  next.firstBlock = static_cast<uint8_t>(firstBlock);
  next.scalarAddress = call.preScaleAddress;
  std::memcpy(&next.scalar, call.preScale.bytes, sizeof next.scalar);
  next.signature = signatureOf(call);
  next.reach = -1;
  if (isReached) {
    launch_.reaches[launch_.reachCount] = reach;
    next.reach = static_cast<int8_t>(launch_.reachCount++);
  }
  return {};
}

// In a launch of its own.
Status GpuBatcher::addProgram(const Call& call, const GpuChooser::Decision& decision,
                              const Emit& emit) {
  constexpr size_t kMostKept = 256;
  TUTTI_TRY(flush(emit));
  const plan::CallShape& shape = call.shape;
  const int32_t root = hasRoot(shape.collective) ? index(shape.peer) : 0;
  if (programs_.size() >= kMostKept) programs_.clear();
  auto& launch = programs_[ProgramKey{shape.collective, shape.type, shape.op, shape.count, root}];
  if (launch == nullptr) {
    launch = std::make_unique<wire::GpuProgramLaunch>();
    launch->view = programView_;
    kernels::cuda::fillProgram(decision.request, *decision.program,
                               {.rank = Rank{programView_.rank}, .root = Rank{root}}, *launch);
  }
  if (launch->call.wordCount == 0) {
    return internalError("{} by {} among {} ranks has no room in a launch", name(shape.collective),
                         decision.program->algorithm->name, limits_.rankCount);
  }
  wire::GpuProgramCall& next = launch->call;
  next.input = static_cast<const std::byte*>(call.input);
  next.output = static_cast<std::byte*>(call.output);
  next.scalarAddress = call.preScaleAddress;
  std::memcpy(&next.scalar, call.preScale.bytes, sizeof next.scalar);
  next.signature = signatureOf(call);
  return emit({.program = launch.get(),
               .collectiveCount = 1,
               .choice = kernels::cuda::programKernel(decision.request, *decision.program),
               .blocks = decision.program->blocks});
}

Status GpuBatcher::flush(const Emit& emit) {
  if (launch_.callCount == 0) return {};
  const kernels::cuda::GpuGrid grid =
      kernels::cuda::gridOf(choice_, blocks_, limits_.rankCount, launch_.isBulk != 0);
  kernels::cuda::GpuChoice choice = choice_;
  choice.threads = grid.threads;
  const Status status = emit({.collectives = &launch_,
                              .transfers = nullptr,
                              .collectiveCount = launch_.callCount,
                              .choice = choice,
                              .blocks = grid.blocks,
                              .sharedBytes = grid.sharedBytes});
  launch_.callCount = launch_.reachCount = 0;
  return status.clone();
}

// A collective of two ranks, in a launch of its own.
Status GpuBatcher::addParts(const Call& call, const kernels::cuda::GpuRequest& request,
                            const Emit& emit) {
  TUTTI_TRY(flush(emit));
  transfers_.transferCount = 0;
  blocks_ = 0;
  transfers_.reduction = {};
  transfers_.reduction.type = call.shape.type;
  transfers_.reduction.op = call.shape.op;
  transfers_.reduction.scalarAddress = call.preScaleAddress;
  std::memcpy(&transfers_.reduction.scalar, call.preScale.bytes,
              sizeof transfers_.reduction.scalar);
  const auto list = kernels::cuda::transferParts(request, {.input = call.input,
                                                           .output = call.output,
                                                           .self = launch_.view.rank,
                                                           .root = index(call.shape.peer)});
  const auto shape = kernels::cuda::shapeTransfer(bytesOf(call), request);
  for (int32_t i = 0; i < list.count; ++i) addPart(call, list.parts[static_cast<size_t>(i)], shape);
  return emitTransfers(emit, kernels::cuda::transferKernelOf(request), GpuBatch::kNoRound);
}

// A collective whose output is in a window of all ranks. While a peer's is not mapped here, kernels
// send, in as many blocks. False: not so, which all ranks find alike.
Result<bool> GpuBatcher::addByEngines(const Call& call, const kernels::cuda::GpuRequest& request,
                                      const Emit& emit) {
  const int32_t self = launch_.view.rank;
  const auto list = kernels::cuda::transferParts(
      request, {.input = call.input, .output = call.output, .self = self, .root = 0});
  const auto parts = std::span(list.parts).first(static_cast<size_t>(list.count));
  if (std::ranges::any_of(parts, &kernels::cuda::TransferPart::isInPlace)) return false;
  const uint64_t bytes = bytesOf(call);
  Places theirs{};
  const uint64_t vectorBytes = bytes * static_cast<uint64_t>(limits_.rankCount);
  if (!*findInWindow_ || !(*findInWindow_)(call.output, vectorBytes, theirs)) return false;
  TUTTI_TRY(flush(emit));
  transfers_.transferCount = 0;
  blocks_ = engines_.ownBlocks = 0;
  engines_.toPeerCount = 0;
  engines_.ownByEngine = {};
  for (const kernels::cuda::TransferPart& part : parts) {
    if (part.peer == self) {
      copyBeside(part, request, bytes);
    } else {
      addPart(call, part, kernels::cuda::engineShape(request));
      transfers_.transfers[transfers_.transferCount - 1].signature ^= kOfEngines;
    }
  }
  carryByEngines(theirs);
  log::info(log::Subsystem::kColl, "rank {}: {} of {} bytes to {} of {} peers by copy engines{}",
            self, name(call.shape.collective), bytes, engines_.toPeerCount, limits_.rankCount - 1,
            engines_.toPeerCount < limits_.rankCount - 1
                ? ", to others in few blocks, since their windows are not mapped yet"
                : "");
  TUTTI_TRY(emit({.collectives = nullptr,
                  .transfers = &transfers_,
                  .engines = &engines_,
                  .collectiveCount = 1,
                  .choice = kernels::cuda::transferKernel(),
                  .blocks = blocks_}));
  return true;
}

// Where transfers_ holds a send to a peer whose window is mapped here, sends to such peers and all
// receives become a gate, a copy each, and what is told afterwards. All receives: a rank behind
// whose gate no place was named yet could wait for one that waits for it.
void GpuBatcher::carryByEngines(const Places& theirs) {
  wire::GpuTransfers& gate = engines_.gate;
  gate.transferCount = 0;
  const auto all =
      std::span(transfers_.transfers).first(static_cast<size_t>(transfers_.transferCount));
  const auto outputOf = [&](const wire::GpuTransfer& send) {
    return theirs[static_cast<size_t>(send.peer)];
  };
  const bool isMapped = std::ranges::any_of(all, [&](const wire::GpuTransfer& transfer) {
    return transfer.isSend && outputOf(transfer) != nullptr;
  });
  if (!isMapped) return;
  for (wire::GpuTransfer& transfer : all) {
    if (transfer.isSend) {
      if (outputOf(transfer) == nullptr) continue;
      // This rank's block of the peer's output.
      std::byte* const there =
          outputOf(transfer) + static_cast<size_t>(launch_.view.rank) * transfer.bytes;
      transfer.source = there;
      engines_.toPeers[static_cast<size_t>(engines_.toPeerCount++)] = {there, transfer.buffer,
                                                                       transfer.bytes};
    }
    transfer.engine = wire::GpuEngine::kGate;
    gate.transfers[gate.transferCount++] = transfer;
    transfer.engine = wire::GpuEngine::kTell;
  }
}

void GpuBatcher::copyBeside(const kernels::cuda::TransferPart& part,
                            const kernels::cuda::GpuRequest& request, uint64_t bytes) {
  if (request.prefersEngines) {
    engines_.ownByEngine = {part.buffer, part.source, bytes};
    return;
  }
  engines_.ownBlocks = kernels::cuda::shapeTransfer(bytes, request).blocks;
  engines_.own.transferCount = 1;
  wire::GpuTransfer& own = engines_.own.transfers[0];
  own.buffer = part.buffer;
  own.source = part.source;
  own.bytes = bytes;
  own.peer = static_cast<int16_t>(part.peer);
  own.blocks = static_cast<int16_t>(engines_.ownBlocks);
}

void GpuBatcher::addTransfer(const Call& call, const std::byte* source) {
  const bool isSend = call.shape.collective == Collective::kSend && source == nullptr;
  void* buffer = isSend ? const_cast<void*>(call.input) : call.output;
  addPart(call,
          {.isSend = isSend,
           .buffer = static_cast<std::byte*>(buffer),
           .source = source,
           .peer = index(call.shape.peer)},
          kernels::cuda::shapeTransfer(bytesOf(call), chooser_.requestFor(call.shape)));
}

void GpuBatcher::addPart(const Call& call, const kernels::cuda::TransferPart& part,
                         const kernels::cuda::TransferShape& shape) {
  wire::GpuTransfer& next = transfers_.transfers[transfers_.transferCount++];
  next = {};
  next.buffer = part.buffer;
  next.source = part.source;
  next.bytes = bytesOf(call);
  next.signature = signatureOf(call);
  next.peer = static_cast<int16_t>(part.peer);
  next.firstBlock = static_cast<int16_t>(blocks_);
  next.blocks = static_cast<int16_t>(shape.blocks);
  const bool isMove = part.source == nullptr && !isReduction(call.shape.collective);
  next.messages = isMove ? shape.messages : wire::GpuMessages::kSlots;
  next.isSend = part.isSend;
  next.tellsPlace = shape.tellsPlace && isMove;
  next.isInPlace = part.isInPlace;
  next.pull = shape.pull;
  wire::GpuReach reach{};
  // In place, the peer would write what is still to be sent.
  if (next.tellsPlace && !part.isSend && !part.isInPlace &&
      (*find_)(part.buffer, next.bytes, reach)) {
    next.reach = reach.output[part.peer];
    next.alive = reach.alive;
  }
  blocks_ += next.blocks;
}

void GpuBatcher::addProgramTransfer(const Call& call, const std::byte* source) {
  wire::GpuProgramTransfers& launch = *programTransfers_;
  const bool isSend = call.shape.collective == Collective::kSend && source == nullptr;
  if (source != nullptr) launch.source = source;
  wire::GpuProgramTransfer& next = launch.transfers[launch.transferCount++];
  next = {};
  next.buffer = static_cast<std::byte*>(isSend ? const_cast<void*>(call.input) : call.output);
  next.bytes = bytesOf(call);
  next.signature = signatureOf(call);
  next.firstBlock = static_cast<uint16_t>(blocks_);
  next.peerAndKind =
      static_cast<uint8_t>(index(call.shape.peer) | (isSend ? wire::kGpuProgramSends : 0));
  next.blocks = static_cast<uint8_t>(
      kernels::cuda::programTransferBlocks(chooser_.requestFor(call.shape), next.bytes));
  blocks_ += next.blocks;
}

Status GpuBatcher::emitRound(const Emit& emit, int32_t round) {
  if (!isForPrograms()) {
    if (transfers_.transferCount == 0) return {};
    return emitTransfers(emit, kernels::cuda::transferKernel(), round);
  }
  if (programTransfers_->transferCount == 0) return {};
  return emit({.programTransfers = programTransfers_.get(),
               .round = round,
               .choice = kernels::cuda::programTransferKernel(),
               .blocks = blocks_});
}

// `round` of a collective: GpuBatch::kNoRound.
Status GpuBatcher::emitTransfers(const Emit& emit, kernels::cuda::GpuChoice choice, int32_t round) {
  choice.startsEarly = kernels::cuda::startsEarly(blocks_, limits_.ranksPerDevice);
  return emit({.collectives = nullptr,
               .transfers = &transfers_,
               .collectiveCount = round == GpuBatch::kNoRound ? 1 : 0,
               .round = round,
               .choice = choice,
               .blocks = blocks_});
}

// One launch with the round's send to and receive from each peer; false when there is none.
Result<bool> GpuBatcher::transferRound(std::span<const StreamCall> calls, int32_t round,
                                       const Emit& emit) {
  std::array<int32_t, wire::kGpuProgramRanks> sends{};
  std::array<int32_t, wire::kGpuProgramRanks> receives{};
  const auto add = [this](const Call& call, const std::byte* source) {
    isForPrograms() ? addProgramTransfer(call, source) : addTransfer(call, source);
  };
  const Call* selfSend = nullptr;
  const Call* selfReceive = nullptr;
  bool isMore = false;
  transfers_.transferCount = 0;
  if (isForPrograms()) programTransfers_->transferCount = 0;
  blocks_ = 0;
  for (const StreamCall& item : calls) {
    const Call& call = *item.call;
    if (!isPointToPoint(call) || call.shape.count == 0) continue;
    const auto peer = static_cast<size_t>(index(call.shape.peer));
    const bool isSend = call.shape.collective == Collective::kSend;
    const int32_t place = isSend ? sends[peer]++ : receives[peer]++;
    isMore |= place > round;
    if (place != round) continue;
    if (index(call.shape.peer) == launch_.view.rank) {
      (isSend ? selfSend : selfReceive) = &call;
    } else {
      add(call, nullptr);
    }
  }
  if (selfSend != nullptr && selfReceive != nullptr && selfSend->input != selfReceive->output)
    add(*selfReceive, static_cast<const std::byte*>(selfSend->input));
  TUTTI_TRY(emitRound(emit, round));
  return isMore;
}

}  // namespace tutti::launch
