// GOAL, the form of LogGOPSim: per rank sends, receives and calculations with what each requires. A
// lane's calculation of a step requires its messages and the lane's step before; its sends require
// it. cpu is the channel, so lanes run side by side; tags tell a pair's messages apart.
#include <algorithm>
#include <bit>
#include <cstring>

#include "sim/export_internal.h"

namespace tutti::sim {
namespace {

static_assert(std::endian::native == std::endian::little, "the packed form is little-endian");

enum class OpType : uint8_t { kSend = 1, kReceive = 2, kCalc = 3 };

struct Op {
  OpType type = OpType::kCalc;
  uint32_t peer = 0;
  uint64_t size = 0;  // bytes, or nanoseconds
  uint32_t tag = 0;
  uint8_t cpu = 0;
  std::vector<uint32_t> requires_;  // earlier operations of the rank
};

Result<std::vector<Op>> opsOf(const FlowTable& table, Rank rank) {
  std::vector<Op> ops;
  int32_t channel = -1;
  int64_t before = -1;  // the lane's calculation before
  const auto add = [&](const FlowStep& step) -> Status {
    if (step.channel != channel) before = -1;
    channel = step.channel;
    const auto cpu = static_cast<uint8_t>(step.channel);
    Op calc{.size = calcNanoseconds(table, step), .cpu = cpu, .requires_ = {}};
    if (before >= 0) calc.requires_.push_back(static_cast<uint32_t>(before));
    for (const FlowStep::End& end : step.receives) {
      TUTTI_TRY_ASSIGN(const uint32_t tag, tagOf(step.channel, end.place));
      calc.requires_.push_back(static_cast<uint32_t>(ops.size()));
      ops.push_back({.type = OpType::kReceive,
                     .peer = static_cast<uint32_t>(index(end.peer)),
                     .size = step.bytes,
                     .tag = tag,
                     .cpu = cpu,
                     .requires_ = {}});
    }
    before = static_cast<int64_t>(ops.size());
    ops.push_back(std::move(calc));
    for (const FlowStep::End& end : step.sends) {
      TUTTI_TRY_ASSIGN(const uint32_t tag, tagOf(step.channel, end.place));
      ops.push_back({.type = OpType::kSend,
                     .peer = static_cast<uint32_t>(index(end.peer)),
                     .size = step.bytes,
                     .tag = tag,
                     .cpu = cpu,
                     .requires_ = {static_cast<uint32_t>(before)}});
    }
    return {};
  };
  TUTTI_TRY(table.forSteps(rank, add));
  return ops;
}

std::string textOf(const Op& op, size_t number) {
  switch (op.type) {
    case OpType::kSend:
      return fmt::format("l{}: send {}b to {} tag {} cpu {}\n", number, op.size, op.peer, op.tag,
                         op.cpu);
    case OpType::kReceive:
      return fmt::format("l{}: recv {}b from {} tag {} cpu {}\n", number, op.size, op.peer, op.tag,
                         op.cpu);
    case OpType::kCalc: return fmt::format("l{}: calc {} cpu {}\n", number, op.size, op.cpu);
  }
  return "";
}

template <typename Number>
void put(std::string& bytes, Number value) {
  char raw[sizeof(Number)];
  std::memcpy(raw, &value, sizeof value);
  bytes.append(raw, sizeof value);
}

// What follows an operation and waits for its end.
struct Followers {
  std::vector<std::vector<uint32_t>> of;
  explicit Followers(const std::vector<Op>& ops) : of(ops.size()) {
    for (size_t i = 0; i < ops.size(); ++i) {
      for (const uint32_t before : ops[i].requires_) of[before].push_back(static_cast<uint32_t>(i));
    }
  }
};

std::string packed(const std::vector<Op>& ops) {
  const Followers followers(ops);
  std::string bytes, appendix;
  put(bytes, static_cast<uint32_t>(ops.size()));
  std::vector<uint32_t> roots;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].requires_.empty()) roots.push_back(static_cast<uint32_t>(i));
  }
  put(bytes, static_cast<uint32_t>(roots.size()));
  for (const uint32_t root : roots) put(bytes, root);
  uint32_t listed = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    put(bytes, static_cast<uint32_t>(op.requires_.size()));
    put(bytes, static_cast<char>(op.type));
    put(bytes, op.peer);
    put(bytes, op.size);
    put(bytes, op.tag);
    put(bytes, op.cpu);
    put(bytes, uint8_t{0});  // nic
    put(bytes, static_cast<uint32_t>(followers.of[i].size()));
    put(bytes, listed);
    put(bytes, uint32_t{0});  // none that waits for its start
    put(bytes, uint32_t{0});
    for (const uint32_t next : followers.of[i]) put(appendix, next);
    listed += static_cast<uint32_t>(followers.of[i].size());
  }
  return bytes + appendix;
}

}  // namespace

Status writeGoal(const FlowTable& table, const Sink& sink) {
  const int32_t ranks = table.traffic().rankCount();
  TUTTI_TRY(sink("", fmt::format("num_ranks {}\n", ranks)));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    TUTTI_TRY_ASSIGN(const std::vector<Op> ops, opsOf(table, Rank{rank}));
    std::string text = fmt::format("\nrank {} {{\n", rank);
    for (size_t i = 0; i < ops.size(); ++i) {
      text += textOf(ops[i], i);
      for (const uint32_t before : ops[i].requires_)
        text += fmt::format("l{} requires l{}\n", i, before);
    }
    TUTTI_TRY(sink("", text + "}\n"));
  }
  return {};
}

// The jump table stands before the ranks and names their ends, so they are made twice rather than
// kept.
Status writeGoalBinary(const FlowTable& table, const Sink& sink) {
  constexpr uint64_t kMagic = 4223;
  const int32_t ranks = table.traffic().rankCount();
  std::string head;
  put(head, kMagic);
  put(head, static_cast<uint32_t>(ranks));
  put(head, static_cast<uint8_t>(table.traffic().channelCount() - 1));
  put(head, uint8_t{0});
  uint64_t at = sizeof(uint32_t) + 2 * sizeof(uint8_t) +
                2 * sizeof(uint64_t) * static_cast<uint64_t>(ranks);  // after the magic
  for (int32_t rank = 0; rank < ranks; ++rank) {
    TUTTI_TRY_ASSIGN(const std::vector<Op> ops, opsOf(table, Rank{rank}));
    put(head, at);
    at += packed(ops).size();
    put(head, at);
  }
  TUTTI_TRY(sink("", head));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    TUTTI_TRY_ASSIGN(const std::vector<Op> ops, opsOf(table, Rank{rank}));
    TUTTI_TRY(sink("", packed(ops)));
  }
  return {};
}

}  // namespace tutti::sim
