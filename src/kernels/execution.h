// Runs one rank's program over links, on the CPU: the general executor.
//
// An execution is resumable: poll() folds until a step has to wait for a message or a free slot,
// and says which with addWaits(). One thread can so drive any number of executions, of one rank or
// of several.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/relax_cpu.h"
#include "base/status.h"
#include "base/units.h"
#include "device/task.h"
#include "kernels/bound_program.h"
#include "kernels/crew.h"
#include "kernels/gpu_folder.h"
#include "kernels/joint_copy.h"
#include "kernels/outbox.h"
#include "kernels/step_scratch.h"
#include "schedule/placements.h"

namespace tutti::kernels {

// From this length on it can pay that the receiver reads a message in place.
inline constexpr size_t kSharedMinBytes = 1_KiB;

// Messages into mapped buffers are offered a place from this length on: broadcasts of 16, 24 and 32
// KiB take 1.15, 0.82 and 0.6 of the time (Intel Xeon VM, family 6, model 167, 2026-11-29). Others
// from wire::kJointMinBytes.
inline constexpr size_t kDividedMinBytes = 24_KiB;

// The buffers of a call that peers can map, and which steps' messages may then name them.
struct SharedBuffers {
  wire::SharedSegment input;                         // holds the whole buffer; serial 0: not shared
  wire::SharedSegment output;                        // the same
  std::span<const uint8_t> referableSteps;           // schedule::referableSteps()
  std::span<const uint8_t> answeredSteps;            // schedule::answeredSteps()
  const schedule::Placements* placements = nullptr;  // null: no places are offered
  bool mapsOutput = false;  // places are offered here, or by another program for such calls
  size_t minBytes = kSharedMinBytes;  // of a message that names them
};

// What one call brings. All is borrowed until the run is done, when the buffers are the caller's
// again.
struct Binding {
  const BoundProgram* program = nullptr;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  Scalar preScale{};       // kPreMulSum
  uint32_t signature = 0;  // of the call; every message carries it
  StepScratch* scratch = nullptr;
  const SharedBuffers* shared = nullptr;  // null: neither buffer is
  bool refers = false;       // with its messages, where the program leaves that to each sender
  bool agrees = false;       // to what the plan proposes; see Execution::isAgreed()
  bool streams = false;      // the buffers are too long to be found in a cache later
  bool isJoint = false;      // both ends copy long references, where both say so
  GpuFolder* gpu = nullptr;  // whose memory the buffers are, and long messages may be; null: none's
  // For messages to several.
  Outbox* outbox = nullptr;
  Crew* crew = nullptr;  // helps with what is long; null: nobody does
};

class Execution {
 public:
  void start(const Binding& binding) {
    binding_ = binding;
    start();
  }
  // The same with what has been written there: a copy just after would wait for the writes.
  Binding& binding() { return binding_; }
  const Binding& binding() const { return binding_; }
  void start();
  // The same where the last run is done, and only these, and whether it agrees, are others since.
  struct Brought {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    uint32_t signature = 0;
  };
  void restart(const Brought& brought) {
    binding_.input = brought.input;
    binding_.output = brought.output;
    binding_.signature = brought.signature;
    rewind();
    hasReferred_ = refers_;
    flags_ = binding_.agrees ? wire::kAgrees : 0;
    isPlain_ = bringsPayloads_ && !binding_.agrees;
    if (blockage_.what != For::kNothing) blockage_ = {};
    dropJoint();
    if (isHearing_) [[unlikely]]
      binding_.outbox->begin();
  }

  // kDone once, after the last step. kInvalidUsage when a message belongs to another call. Looks up
  // to so many times for what the step at hand waits for (device::Task::looks).
  Result<Progress> poll(uint32_t looks = 1) {
    return binding_.isJoint ? pollAndHelp(looks) : runSteps(looks);
  }
  // Of what has just begun, and mostly is short: the same, but false also for an error, which the
  // next poll() comes upon again.
  bool runAtOnce(uint32_t looks) {
    if (binding_.program->runsOnce() && (isPlain_ || isMapped_)) [[likely]]
      return runOnce(looks);
    return runsThrough(looks);
  }
  // The one step that holds this execution up.
  void addWaits(device::WaitSet& waits) const;

  // Of a call that fails: nobody writes into its memory any more, but who has been offered a place.
  // Who is at it is waited for as long as `mayWait` says (JointReceive::withdraw()).
  using MayWait = std::function<bool(const BoundOperand& writer)>;
  void withdraw(const MayWait& mayWait);
  // Whether some rank may write into the output (wire::isBeingWritten()).
  bool hasOffered() const { return hasOffered_; }

  // Once done. Its messages were references, all that could have been, and there were some.
  bool hasReferred() const { return hasReferred_ && !hasCopied_; }
  // Once done. Whoever this rank sends to can write to its output, where the buffers say that it
  // is to be mapped.
  bool hasMappedOutput() const { return hasForms_ && !isOutputUnmapped_; }
  // Once done. Some message could have named memory that its receiver has yet to map.
  bool isUnmapped() const { return isUnmapped_; }
  // Once done. All ranks agreed, where each rank's result depends on every other's input: each
  // message says whether all agreed that its sender had heard of, and so the answer has come
  // everywhere with the data. REQUIRES: messages between the ranks of one host only, none empty.
  bool isAgreed() const { return flags_ != 0; }

  // What the last poll() waited for; peer -1 when for nobody.
  struct Awaited {
    int32_t peer = -1;
    bool isSender = false;  // for a free slot, or for the peer to have read all, rather than for a
                            // message
    size_t step = 0;
    size_t piece = 0;
  };
  Awaited awaited() const;
  // The one look that most polls come to.
  bool isStillBlocked() const;
  // Whether it waits for messages of ranks that are not among `near` alone: by rank, nonzero: near;
  // empty: all are.
  bool awaitsOthersOnly(std::span<const uint8_t> near) const;
  // Why the awaited link will never move, kNone while it may.
  wire::LinkFault awaitedFault() const;

 private:
  void rewind() {
    turn_ = 0;
    step_ = 0;
    hasCopied_ = false;
    hasPlaces_ = false;
    hasOffered_ = false;
    hasForms_ = false;
    isOutputUnmapped_ = false;
    isUnmapped_ = false;
    isOnGpu_ = false;
  }
  void dropJoint() {
    if (joint_.isOpen() || joint_.ahead() > 0) [[unlikely]]
      joint_ = {};
  }
  // kEnd: the peer has failed, and what its message names is gone. It comes for sure: the slow path
  // looks at the peer's fault.
  enum class For : uint8_t { kNothing, kMessage, kSlot, kRoom, kDrain, kBlocks, kGpu, kEnd };
  struct Blockage {
    For what = For::kNothing;
    int32_t peer = -1;
    wire::LinkPort* port = nullptr;
    size_t bytes = 0;     // kSlot: of the message
    uint64_t number = 0;  // kRoom: of the message that keeps it
    bool isLong() const { return what == For::kSlot && port->view.isLong(bytes); }
    bool isSender() const {
      return what == For::kSlot || what == For::kRoom || what == For::kDrain;
    }
  };
  // What one step works on; the pointers are in the scratch.
  struct StepData {
    size_t elements = 0;
    size_t bytes = 0;
    bool refers = false;                          // messages of this length are references
    size_t localCount = 0;                        // destinations that get a payload
    size_t remoteCount = 0;                       // sources that lie in other processes
    bool readsPeers = false;                      // some source is named by its message
    const std::byte* reference = nullptr;         // what outgoing links get instead of a payload
    const wire::SharedSegment* shared = nullptr;  // that holds it
    bool hasForms = false;                        // each link's form is its own
    const std::byte* room = nullptr;              // in the outbox: what all links get
  };

  // False: the looks are used up but for the one of the next poll.
  static bool mayLookAgain(uint32_t& looks) {
    if (--looks == 0) {
      looks = 1;
      return false;
    }
    relaxCpu();
    return true;
  }
  Result<Progress> runSteps(uint32_t looks);
  bool runOnce(uint32_t looks);
  bool runsThrough(uint32_t looks);
  Result<Progress> pollAndHelp(uint32_t looks);
  bool awaitReady(const BoundStep& step, size_t elements, uint32_t& looks);
  bool isReady(const BoundStep& step, size_t elements);
  bool isDrained();
  void offerLanding(const BoundStep& step, size_t bytes);
  // Of a step of a frequent shape whose messages bring their payload. kUnfit: another step, or a
  // message in another form; nothing has happened, and the general way is open.
  enum class Attempt : uint8_t { kDone, kBlocked, kUnfit };
  Result<Attempt> runStep(const BoundStep& step, size_t elements, uint32_t& looks);
  Result<Attempt> runOnGpu(const BoundStep& step, StepData& data);
  Result<Attempt> receiveJointly(const BoundStep& step, uint32_t& looks);
  bool mayBeJoint(const BoundStep& step) const;
  bool isJoint(const BoundStep& step) const;
  void openAhead(const BoundStep& step);
  void offerJointly(const BoundStep& step, size_t bytes);
  wire::SharedSegment segmentOfOutput() const;  // without a serial: in none
  bool helpReceivers();
  JointSend divide(wire::LinkPort& port, const std::byte* from, uint32_t bytes,
                   wire::MessageKind kind) const;
  [[gnu::always_inline]] inline Attempt tryShape(const BoundStep& step, size_t elements,
                                                 uint32_t& looks);
  Attempt tryMessage(const BoundOperand& link, size_t bytes, uint32_t& looks,
                     const std::byte*& payload);
  Attempt copyHere(const BoundStep& step, size_t elements);
  inline Attempt trySend(const BoundStep& step, size_t elements, uint32_t& looks);
  Attempt trySpread(const BoundStep& step, size_t elements, uint32_t& looks);
  bool awaitSlot(const BoundOperand& link, size_t bytes, uint32_t& looks);
  void sendCopy(wire::LinkPort& port, const std::byte* from, size_t bytes, uint32_t flags = 0);
  // By way of the outbox (posted_messages.cc).
  bool isMappedByAll(const BoundStep& step) const;
  std::byte* takeRoom(const BoundStep& step, size_t bytes);
  bool awaitsRoom(const BoundStep& step, size_t bytes);
  bool mayPost() const;
  bool canRead(wire::LinkPort& port) const;
  bool postCopies(const BoundStep& step, StepData& data);
  void publishPosted(const BoundStep& step, const std::byte* room, size_t bytes);
  void publishRoom(wire::LinkPort& port, const std::byte* room, size_t bytes);
  uint32_t announceOutbox(wire::LinkPort& port, size_t bytes) const;
  uint32_t announcementBeside(const BoundStep& step, wire::LinkPort& port, size_t bytes) const {
    return mayPost_ && step.linkCount > 1 ? announceOutbox(port, bytes) : 0;
  }
  const std::byte* findPosted(const wire::LinkPort& port, size_t bytes) const;
  inline Attempt tryReceive(const BoundStep& step, size_t elements, uint32_t& looks);
  inline void fetchNextMessage(const BoundOperand& link, size_t bytes);
  inline Attempt tryPair(const BoundStep& step, size_t elements, uint32_t& looks);
  // The same where messages name memory that is mapped (mapped_steps.cc).
  Attempt tryMappedShape(const BoundStep& step, size_t elements, uint32_t& looks);
  Attempt tryMappedMessage(const BoundOperand& link, size_t bytes, uint32_t& looks,
                           const std::byte*& memory);
  Attempt tryMappedSend(const BoundStep& step, size_t elements, uint32_t& looks);
  Attempt tryMappedReceive(const BoundStep& step, size_t elements, uint32_t& looks);
  Attempt tryMappedJointly(const BoundStep& step, const std::byte* memory, uint32_t& looks);
  Attempt tryLanded(const BoundStep& step, size_t bytes);
  Attempt tryMappedPair(const BoundStep& step, size_t elements, uint32_t& looks);
  Attempt tryPlacedPair(const BoundStep& step, size_t elements, uint32_t& looks);
  static Attempt endMapped(wire::LinkPort& port);
  Status takeSources(const BoundStep& step, StepData& data);
  void placeDestinations(const BoundStep& step, StepData& data);
  void placeByForms(const BoundStep& step, const wire::SharedSegment* segment, StepData& data);
  const wire::SharedSegment* sharedContent(const BoundStep& step, StepData& data) const;
  void publishByForms(const BoundStep& step, const StepData& data);
  Status takeOtherForm(const BoundStep& step, size_t at, StepData& data);
  Status takeShared(const BoundOperand& source, size_t at, StepData& data);
  MessageForm chooseForm(wire::LinkPort& port, const wire::SharedSegment* segment,
                         const StepData& data);
  bool isPlaced(const BoundStep& step) const;
  uint32_t offerPlace(const BoundStep& step, wire::LinkPort& port, MessageForm form);
  uint32_t flagsOf(const BoundStep& step, wire::LinkPort& port, MessageForm form);
  size_t numberOf(const BoundStep& step) const {
    return static_cast<size_t>(&step - binding_.program->steps().data());
  }
  void takeReference(const wire::LinkPort& port, size_t at, StepData& data);
  // These two: the source whose sender has failed, so that the memory it names is its caller's
  // again; null: there is none.
  const BoundOperand* beginReading(const BoundStep& step) const;
  const BoundOperand* findLost(const BoundStep& step) const;
  void endReading(const BoundStep& step) const;
  Attempt endWith(const BoundOperand& source);
  Status takeMessage(const BoundStep& step, size_t at, StepData& data);
  Status refuseMessage(const BoundStep& step, const BoundOperand& source, size_t bytes) const;
  size_t streamedCount(const BoundStep& step, const StepData& data) const;
  Status compute(const BoundStep& step, const StepData& data);
  Status computeTogether(const BoundStep& step, const StepData& data);
  // Of the elements whose addresses are in the scratch, which is a thread's own.
  Status computeWith(StepScratch& scratch, const BoundStep& step, const StepData& data) const;
  void computeHere(const StepScratch& scratch, const BoundStep& step, const StepData& data) const;
  Status computeInBlocks(StepScratch& scratch, const BoundStep& step, const StepData& data) const;
  void publish(const BoundStep& step, const StepData& data);
  // The original then serves as what the copy's messages refer to.
  bool isLocalCopy(const BoundStep& step) const {
    return step.isCopy && binding_.program->sources(step)[0].place != schedule::Place::kLink;
  }
  const std::byte* localAt(const BoundOperand& operand) const {
    return operand.place == schedule::Place::kInput ? inputAt(operand) : outputAt(operand);
  }
  const std::byte* inputAt(const BoundOperand& operand) const {
    return binding_.input + operand.offset + pieceOffset_;
  }
  std::byte* outputAt(const BoundOperand& operand) const {
    return binding_.output + operand.offset + pieceOffset_;
  }

  Binding binding_;
  size_t turn_ = 0;
  size_t step_ = 0;
  size_t pieceOffset_ = 0;  // bytes before the step's piece in every chunk
  Blockage blockage_;
  bool refers_ = false;          // messages longer than a line are references
  bool bringsPayloads_ = false;  // its messages do
  bool isPlain_ = false;         // its messages bring their payload and nothing else
  bool mayPost_ = false;         // those for several may go by way of the outbox
  bool isHearing_ = false;       // from all others, and has an outbox
  bool isMapped_ = false;        // they may name mapped memory, and results stay in the caches
  bool hasReferred_ = false;     // to memory that is the caller's again at the end
  uint32_t flags_ = 0;           // of messages: kAgrees, until one comes that does not
  // Cleared together.
  bool hasCopied_ = false;  // what could not yet be read in place
  bool hasPlaces_ = false;  // some outgoing link's receiver has offered one
  bool hasOffered_ = false;
  bool hasForms_ = false;  // messages have gone by forms of their own
  bool isOutputUnmapped_ = false;
  bool isUnmapped_ = false;
  bool isOnGpu_ = false;         // the step's fold is
  GpuFolder::Ticket ticket_{0};  // then
  JointReceive joint_;           // open while a step's message is copied by both ends
};

}  // namespace tutti::kernels
