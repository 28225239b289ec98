// Messages over a fabric's lanes. The first lane carries labels, with short payloads behind them,
// into a window of receives that are posted ahead; long payloads go straight from where they lie to
// where they are wanted, cut into equal pieces, one for each of the other lanes, so that all
// adapters work on each. Beside the lanes there is a control connection of another network: it
// brings the notice of a side that leaves, with how many messages it has sent or received whole,
// and its end tells of a peer's death, of which a fabric says nothing.
//
// Beside the link's rings that may be memory of the program's: segments of ncclMemAlloc, of which
// lanes are told at their first payload there, and whose addresses are held meanwhile; or anywhere,
// where lanes need to be told of nothing. When such memory is taken back while a payload is under
// way there, the lanes are given up.
//
// Where calls of the lanes' library may not return, a thread of the network's makes them
// (net/queued_lane.h). Where it hangs in one, this end fails and keeps its control connection, to
// say so.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/shared_memory.h"
#include "net/fabric.h"
#include "net/fabric_transfer.h"
#include "net/held_lane.h"
#include "net/net.h"

namespace tutti::net {

// What a link has of a fabric; both ends are made of the same numbers.
struct LaneSet {
  std::vector<std::unique_ptr<Lane>> lanes;  // the first is for labels; at least two
  std::vector<size_t> devices;               // this end's adapter of each lane
  size_t maxMessageBytes = 0;                // of both ends' fabrics, the smaller
  std::string peer;                          // "rank 3", for messages
  std::shared_ptr<LaneThread> thread{};      // shared with all who use it; null: none
  // Where the program's memory is known that payloads may lie in; null: the lanes need not know it,
  // or payloads lie in the link's own. Outlives the connection.
  device::SharedMemory* segments = nullptr;
};

inline constexpr size_t kLabelSlotBytes = 4096;  // a label and a short payload

class FabricConnection : public Connection {
 public:
  FabricConnection(std::unique_ptr<Connection> control, LaneSet set);
  ~FabricConnection() override;
  void keep(std::shared_ptr<const void> memory) override { linkMemory_ = std::move(memory); }
  bool isHung() const override { return set_.thread != nullptr && set_.thread->isHung(); }
  Status takeGpuMemory(const GpuRegion& region) override;
  bool reaches(std::span<std::byte> memory) override;
  // Whether anything has moved since it was last asked.
  bool takeHasMoved() { return std::exchange(hasMoved_, false); }

 protected:
  std::span<std::byte> slot(uint64_t message) {
    return std::span(*slots_).subspan(message % kWindow * kLabelSlotBytes, kLabelSlotBytes);
  }
  HeldLane& labels() { return *lanes_.front(); }
  std::span<const Transfer::Road> roads() const { return roads_; }
  Transfer::Cut cut(uint64_t message) const {
    return {.roadCount = roads_.size(), .maxPieceBytes = set_.maxMessageBytes, .message = message};
  }
  const std::string& peer() const { return set_.peer; }
  // From the return on no memory is touched for this connection, which lives on for a notice;
  // unless the library does not return from a call: then what it may touch of the link's stays,
  // with these.
  void dropLanes(std::vector<HeldLane::Keeper> keepers = {});
  bool hasLanes() const { return !lanes_.empty(); }
  bool isOnGpu(std::span<const std::byte> payload) const {
    return payload.data() >= gpu_.data() && payload.data() < gpu_.data() + gpu_.size();
  }

  // By another road than the messages, so it says how many came before it.
  Progress sendNotice(const Label& label, std::span<const std::byte> text, uint64_t count);
  // kDone: the other side's has come.
  Result<Progress> hearNotice();
  void takeNotice(std::span<std::byte> text) const;
  // Its side has closed the control connection, and the lanes have been looked at so often since
  // that what it had sent would be here.
  bool hasPeerGone(uint64_t rounds);
  bool hasNotice() const { return heard_ == Heard::kAll; }
  const Label& notice() const { return notice_; }
  uint64_t peerCount() const;

  // Once a lane has failed, of each look for the notice: it has come, or may come yet.
  bool mayHear(Result<Progress>& heard);

  // REQUIRES: no error has been returned.
  Connection& control() { return *control_; }
  const Connection& control() const { return *control_; }
  // The peer's lanes may be whole; that the control connection ends tells it. Returns the trouble.
  Status breakOff(Status trouble);

  Lane::Memory slotMemory_;
  bool hasMoved_ = false;
  Status laneTrouble_;  // then only a notice is awaited
  uint32_t troubledLooks_ = 0;

 private:
  std::unique_ptr<Connection> control_;
  LaneSet set_;  // its lanes have gone into these
  std::vector<std::unique_ptr<HeldLane>> lanes_;
  // Shared with calls under way, as is the link's.
  const std::shared_ptr<std::vector<std::byte>> slots_;
  std::shared_ptr<const void> linkMemory_;
  std::vector<std::unique_ptr<EnrolledMemory>> enrolled_;  // of each payload lane
  std::vector<Transfer::Road> roads_;
  std::span<std::byte> gpu_;  // memory of a GPU that payloads may lie in

  // Notices begin with a count, as a message of its own.
  enum class Heard : uint8_t { kNothing, kCountLabel, kCount, kLabel, kAll };
  using CountBytes = std::array<std::byte, sizeof(uint64_t)>;
  CountBytes ownCount_{};
  Heard heard_ = Heard::kNothing;
  CountBytes peerCount_{};
  Label notice_;
  std::vector<std::byte> noticeText_;
  Result<Progress> readNotice();
  uint64_t laneRounds() const;
  Status controlEnd_;                      // once the other side has closed it
  std::optional<uint64_t> closedAtRound_;  // laneRounds() when that was first seen
};

// The sender's end. It receives nothing but the notice of a receiver that leaves.
class FabricSender final : public FabricConnection {
 public:
  static Result<std::unique_ptr<Connection>> open(std::unique_ptr<Connection> control, LaneSet set);
  ~FabricSender() override { dropLanes(copies()); }

  Progress send(const Label& label, std::span<const std::byte> payload) override;
  Result<Progress> flush() override;
  uint64_t sentCount() const override { return sent_; }
  void keepCopies(std::span<const std::byte> own) override;
  void stop() override;
  Result<Progress> receiveLabel(Label& label) override;
  Result<Progress> receivePayload(std::span<std::byte> payload) override {
    takeNotice(payload);
    return Progress::kDone;
  }

 private:
  using FabricConnection::FabricConnection;
  struct Outgoing {
    bool isUnderWay() const { return isLong && !transfer.isMoved(); }

    size_t labelBytes = 0;  // with the payload that goes with it
    Lane::Request label;
    bool isLabelSent = false;
    bool isLong = false;
    Transfer transfer;
    // Of payloads that cannot go from where they lie; kept for more. Shared with calls under way.
    std::shared_ptr<std::vector<std::byte>> copy;
  };
  std::vector<HeldLane::Keeper> copies() const;
  std::span<std::byte> copyOf(Outgoing& message, std::span<const std::byte> payload);
  bool copyWhatIsLent(std::span<const std::byte> own);
  void giveUp();
  Result<Progress> moveAll();
  Result<bool> postOne(Outgoing& message, uint64_t number);
  Result<bool> testOne(Outgoing& message);

  std::array<Outgoing, kWindow> outgoing_;
  uint64_t taken_ = 0;
  uint64_t posted_ = 0;
  uint64_t sent_ = 0;
  std::optional<uint64_t> wholeCount_;  // once given up: the messages that went out whole
};

// The receiver's end. It sends nothing but its notice.
class FabricReceiver final : public FabricConnection {
 public:
  static Result<std::unique_ptr<Connection>> open(std::unique_ptr<Connection> control, LaneSet set);

  Progress send(const Label& label, std::span<const std::byte> payload) override {
    return sendNotice(label, payload, received_);
  }
  Result<Progress> flush() override { return control().flush(); }
  uint64_t sentCount() const override { return control().sentCount(); }
  void stop() override;
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
  Result<Progress> outlastPayload();

  std::array<Lane::Request, kWindow> receives_;
  uint64_t posted_ = 0;    // receives of labels
  uint64_t received_ = 0;  // messages whose payload has been handed over
  uint32_t idleCount_ = 0;
  Payload payload_ = Payload::kWithLabel;  // what the present label announced
  size_t payloadBytes_ = 0;
  bool isTransferring_ = false;
  Transfer transfer_;
};

}  // namespace tutti::net
