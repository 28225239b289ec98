// Messages over a fabric's lanes. The first lane carries labels, with short payloads behind them,
// into a window of receives that are posted ahead; long payloads go straight between the two rings'
// memories, cut into equal pieces, one for each of the other lanes, so that all adapters work on
// each. Beside the lanes there is a control connection of another network: it brings the notice of
// a side that leaves, and its end tells of a peer's death, of which a fabric says nothing.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/fabric.h"
#include "net/net.h"

namespace tutti::net {

// What a link has of a fabric; both ends are made of the same numbers.
struct LaneSet {
  std::vector<std::unique_ptr<Lane>> lanes;  // the first is for labels; at least two
  std::vector<size_t> devices;               // this end's adapter of each lane
  size_t maxMessageBytes = 0;                // of both ends' fabrics, the smaller
  std::string peer;                          // "rank 3", for messages
};

inline constexpr size_t kMaxPayloadLanes = 4;
inline constexpr size_t kWindow = 8;             // messages under way
inline constexpr size_t kLabelSlotBytes = 4096;  // a label and a short payload

// Memory that a lane knows. Rings have few slots, so there are few entries; when there are many,
// the one goes that was not used for longest, which no message is in any more.
class EnrolledMemory {
 public:
  explicit EnrolledMemory(Lane& lane) : lane_(lane) {}
  ~EnrolledMemory();
  EnrolledMemory(const EnrolledMemory&) = delete;
  EnrolledMemory& operator=(const EnrolledMemory&) = delete;

  Result<Lane::Memory> of(std::span<std::byte> bytes);
  // Memory of a GPU, which stays known.
  Status keep(const GpuRegion& region);
  void drop(const GpuRegion& region);

 private:
  static constexpr size_t kMaxEntries = 2 * kMaxRequests;
  static constexpr uint64_t kKept = ~uint64_t{0};
  struct Entry {
    std::span<std::byte> bytes;
    Lane::Memory memory;
    uint64_t usedAt = 0;  // the question that it answered last; kKept
  };
  Lane& lane_;
  std::vector<Entry> entries_;
  uint64_t questions_ = 0;
};

// A long payload on its way over the payload lanes.
class Transfer {
 public:
  struct Road {
    Lane* lane;
    EnrolledMemory* memory;
  };
  struct Cut {
    size_t roadCount = 1;
    size_t maxPieceBytes = 0;
    uint64_t message = 0;  // whose payload it is: each begins on another road
  };
  // The same roads in all calls for one payload.
  void start(std::span<std::byte> payload, const Cut& cut);
  // Posts what is not posted yet. False: the lanes take nothing more now.
  Result<bool> post(std::span<const Road> roads);
  // Looks how far the pieces are. True when all of it has been moved.
  Result<bool> test(std::span<const Road> roads);
  // After that, of a payload in a GPU's memory: true when the GPU sees all of it.
  Result<bool> flush(std::span<const Road> roads);

 private:
  static constexpr size_t kMinPieceBytes = 8192;
  // Of a payload on one lane under way, so that a window of payloads fits a lane.
  static constexpr size_t kMaxPieces = kMaxRequests / kWindow;

  std::span<std::byte> piece(size_t number) const;

  const Road& roadOf(size_t number, std::span<const Road> roads) const {
    return roads[(firstRoad_ + number) % roads.size()];
  }

  std::span<std::byte> payload_;
  size_t firstRoad_ = 0;
  size_t pieceBytes_ = 0;
  size_t pieceCount_ = 0;
  size_t posted_ = 0;
  size_t moved_ = 0;         // all before this one are through
  size_t flushed_ = 0;       // roads that are
  bool isFlushing_ = false;  // the next one is
  std::array<Lane::Request, kMaxPieces * kMaxPayloadLanes> requests_;  // of piece p at p % size
};

class FabricConnection : public Connection {
 public:
  FabricConnection(std::unique_ptr<Connection> control, LaneSet set);
  ~FabricConnection() override;
  Status takeGpuMemory(const GpuRegion& region) override;
  // Whether anything has moved since it was last asked.
  bool takeHasMoved() { return std::exchange(hasMoved_, false); }

 protected:
  // Registers the memory of the labels' slots.
  Status prepare();

  std::span<std::byte> slot(uint64_t message) {
    return std::span(slots_).subspan(message % kWindow * kLabelSlotBytes, kLabelSlotBytes);
  }
  Lane& labels() { return *set_.lanes.front(); }
  std::span<const Transfer::Road> roads() const { return roads_; }
  Transfer::Cut cut(uint64_t message) const {
    return {.roadCount = roads_.size(), .maxPieceBytes = set_.maxMessageBytes, .message = message};
  }
  const std::string& peer() const { return set_.peer; }
  bool isOnGpu(std::span<const std::byte> payload) const {
    return payload.data() >= gpu_.data() && payload.data() < gpu_.data() + gpu_.size();
  }

  // REQUIRES: no error has been returned.
  Connection& control() { return *control_; }
  const Connection& control() const { return *control_; }
  // The peer's lanes may be whole; that the control connection ends tells it. Returns the trouble.
  Status breakOff(Status trouble);

  Lane::Memory slotMemory_;
  bool hasMoved_ = false;

 private:
  // In this order: memory is released before its lane goes, and is there until then.
  std::unique_ptr<Connection> control_;
  std::vector<std::byte> slots_;
  LaneSet set_;
  std::vector<std::unique_ptr<EnrolledMemory>> enrolled_;  // of each payload lane
  std::vector<Transfer::Road> roads_;
  std::span<std::byte> gpu_;  // memory of a GPU that payloads may lie in
  bool isPrepared_ = false;
};

// The sender's end. It receives nothing but the notice of a receiver that leaves.
class FabricSender final : public FabricConnection {
 public:
  static Result<std::unique_ptr<Connection>> open(std::unique_ptr<Connection> control, LaneSet set);

  Progress send(const Label& label, std::span<const std::byte> payload) override;
  Result<Progress> flush() override;
  uint64_t sentCount() const override { return sent_; }
  Result<Progress> receiveLabel(Label& label) override;
  Result<Progress> receivePayload(std::span<std::byte> payload) override {
    return control().receivePayload(payload);
  }

 private:
  using FabricConnection::FabricConnection;
  struct Outgoing {
    size_t labelBytes = 0;  // with the payload that goes with it
    Lane::Request label;
    bool isLabelSent = false;
    bool isLong = false;
    Transfer transfer;
  };
  Progress sendNotice(const Label& label, std::span<const std::byte> text);
  Result<Progress> moveAll();
  Result<bool> postOne(Outgoing& message, uint64_t number);
  Result<bool> testOne(Outgoing& message);

  std::array<Outgoing, kWindow> outgoing_;
  uint64_t taken_ = 0;
  uint64_t posted_ = 0;
  uint64_t sent_ = 0;
  Status laneTrouble_;
  std::array<std::byte, sizeof(uint64_t)> lastCount_{};  // how many messages come before the notice
};

// The receiver's end. It sends nothing but its notice.
class FabricReceiver final : public FabricConnection {
 public:
  static Result<std::unique_ptr<Connection>> open(std::unique_ptr<Connection> control, LaneSet set);

  Progress send(const Label& label, std::span<const std::byte> payload) override {
    return control().send(label, payload);
  }
  Result<Progress> flush() override { return control().flush(); }
  uint64_t sentCount() const override { return control().sentCount(); }
  Result<Progress> receiveLabel(Label& label) override;
  Result<Progress> receivePayload(std::span<std::byte> payload) override;

 private:
  using FabricConnection::FabricConnection;
  enum class Payload : uint8_t { kWithLabel, kOverLanes, kParting };

  Status postReceives();
  Result<Progress> takePayload(std::span<std::byte> payload);
  Status readLabel(size_t bytes, Label& label);
  Result<Progress> idle(Label* label);
  Result<Progress> fail(Status trouble, Label& label);
  Result<Progress> outlast(Label& label);
  Result<Progress> hearControl(Label& label, bool mayDeliver);
  Result<Progress> receiveLong(std::span<std::byte> payload);

  std::array<Lane::Request, kWindow> receives_;
  uint64_t posted_ = 0;    // receives of labels
  uint64_t received_ = 0;  // messages whose payload has been handed over
  uint32_t idleCount_ = 0;
  Status laneTrouble_;  // of the lane of labels
  uint32_t troubledLooks_ = 0;
  Payload payload_ = Payload::kWithLabel;  // what the present label announced
  size_t payloadBytes_ = 0;
  bool isTransferring_ = false;
  Transfer transfer_;

  // Of the control connection.
  bool isCountLabelRead_ = false;
  bool isCountRead_ = false;
  bool isNoticeLabelRead_ = false;
  std::array<std::byte, sizeof(uint64_t)> lastCount_{};
  Label notice_;
};

}  // namespace tutti::net
