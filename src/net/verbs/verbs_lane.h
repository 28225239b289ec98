// A lane over queue pairs: the receiving end tells where its posted receives lie (credits), and the
// sending end's adapters write there, each piece with a number behind it that completes the
// receive. So no adapter ever waits for a receive that is not posted, and pieces of one message may
// go over several queue pairs and ports.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/fabric.h"
#include "net/verbs/flusher.h"
#include "net/verbs/queue_pairs.h"

namespace tutti::net::verbs {

// A posted receive, written by the receiving end's adapter into the sending end's table.
//
// Who writes: that adapter, the whole line at once; `number` is the line's last word. Who reads:
// the sending end's thread, `number` first (acquire), then the rest. What publishes it: a write of
// one aligned 64-byte line is not torn on its way over PCIe, and the table is registered without
// relaxed ordering. It wraps never: numbers count the lane's messages from 1. Nothing simpler:
// two-sided sends would need no credits, but a message would have to stay on one queue pair.
struct alignas(64) Credit {
  uint64_t address = 0;
  std::array<uint32_t, kMaxPorts> keys{};  // of the memory, as each of the receiver's ports knows
                                           // it
  uint32_t bytes = 0;                      // room
  std::array<uint32_t, 7> zero{};
  uint64_t number = 0;
};
static_assert(sizeof(Credit) == 64 && offsetof(Credit, number) == 56);

class VerbsLane final : public Lane {
 public:
  enum class Side : uint8_t { kSender, kReceiver };
  struct Options {
    const Library& library;  // outlives the lane, as do all here
    const VerbsOptions& settings;
    std::vector<Road> roads;
    Side side = Side::kSender;
    size_t pairCount = 1;
    size_t stripe = 1;
    uint32_t packetNumber = 0;
    PacketMarks marks{};
  };
  static Result<std::unique_ptr<VerbsLane>> open(Options options);
  ~VerbsLane() override;

  const LaneTerms& terms() const { return terms_; }
  // Connects to the other end; before anything is posted.
  Status meet(const LaneTerms& peer);

  Result<Memory> enroll(std::span<std::byte> memory) override;
  Result<Memory> enrollGpu(const GpuRegion& region) override;
  void release(Memory memory) override;
  Result<Request> flush(std::span<std::byte> bytes, Memory memory) override;
  Result<Request> post(std::span<std::byte> bytes, Memory memory) override;
  Result<std::optional<size_t>> test(Request request) override;
  CallNames callNames() const override {
    return {.enroll = "ibv_reg_mr",
            .release = "ibv_dereg_mr",
            .post = isSender() ? "ibv_post_send" : "ibv_post_recv",
            .test = "ibv_poll_cq",
            .close = "ibv_destroy_qp"};
  }

 private:
  // What Memory names: the registration of each port's adapter.
  struct Enrolled {
    std::vector<::ibv_mr*> regions;
    std::vector<Owned<::ibv_mr>> own;  // the same, of a GPU's memory: shared with nobody
  };
  struct Operation {
    bool isUsed = false;
    uint64_t number = 0;
    size_t openCount = 0;  // pieces that are not through
    size_t room = 0;
    size_t moved = 0;
  };
  struct Piece {
    std::span<std::byte> bytes;
    uint64_t address = 0;
    uint32_t localKey = 0;
    uint32_t remoteKey = 0;
  };

  explicit VerbsLane(Options options) : options_(std::move(options)) {}
  Status prepare();
  bool isSender() const { return options_.side == Side::kSender; }
  // The pair of a message's piece.
  size_t pairOf(uint64_t number, size_t piece) const {
    return (number * terms_.stripe + piece) % pairs_.count();
  }

  Result<bool> postSend(Operation& operation, std::span<std::byte> bytes, const Enrolled& memory);
  Status writePiece(::ibv_qp* pair, uint64_t number, const Piece& piece);
  Result<const Credit*> nextCredit();
  Result<bool> postReceive(Operation& operation, std::span<std::byte> bytes,
                           const Enrolled& memory);
  Status writeCredit(const Credit& credit);
  void poll();
  void take(const ::ibv_wc& completion);
  void fail(Status why);
  bool isUnderWay() const;
  Status health() const;
  Status explain(const ::ibv_wc& completion) const;

  const Options options_;
  LaneTerms terms_;
  LaneTerms peer_;
  std::array<Operation, kMaxRequests> operations_;  // message n at n % kMaxRequests
  uint64_t posted_ = 0;
  uint64_t creditsDone_ = 0;  // a receiver's: of its first so many, the adapter needs nothing more
  uint64_t bytesSent_ = 0;
  Status trouble_;  // the first

  // Of the sending end: what the other wrote; of the receiving end: what is to be written there.
  std::array<Credit, kMaxRequests> credits_;
  Alarm alarm_;
  Owned<::ibv_mr> creditRegion_;
  std::unique_ptr<Flusher> flusher_;  // a receiver's with memory of a GPU
  QueuePairs pairs_;                  // the first to go: then no adapter touches the rest
};

}  // namespace tutti::net::verbs
