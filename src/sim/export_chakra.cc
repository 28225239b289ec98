// Chakra execution traces (schema/protobuf/et_def.proto of mlcommons/chakra): a file a rank, each
// message with its length before it. A step is a computation that needs its receives and the lane's
// step before; sends need it. Written by hand: few fields, and no library for it.
#include "sim/export_internal.h"

namespace tutti::sim {
namespace {

enum class NodeType : uint64_t { kCompute = 4, kSend = 5, kReceive = 6 };

// Field numbers of the schema.
constexpr uint32_t kNodeId = 1, kNodeName = 2, kNodeType = 3, kNodeDataDeps = 5, kNodeDuration = 7,
                   kNodeAttr = 10;
constexpr uint32_t kAttrName = 1, kAttrInt32 = 7, kAttrInt64 = 9, kAttrBool = 27;
constexpr uint32_t kMetaVersion = 1;

class Message {
 public:
  void number(uint32_t field, uint64_t value) {
    varint(uint64_t{field} << 3);
    varint(value);
  }
  void text(uint32_t field, std::string_view value) {
    varint(uint64_t{field} << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  void numbers(uint32_t field, const std::vector<uint64_t>& values) {
    if (values.empty()) return;
    Message list;
    for (const uint64_t value : values) list.varint(value);
    text(field, list.bytes_);
  }
  void attribute(std::string_view name, uint32_t field, uint64_t value) {
    Message made;
    made.text(kAttrName, name);
    made.number(field, value);
    text(kNodeAttr, made.bytes_);
  }
  // With its length before it, as the file has messages.
  std::string delimited() const {
    Message length;
    length.varint(bytes_.size());
    return length.bytes_ + bytes_;
  }

 private:
  void varint(uint64_t value) {
    for (; value > 127; value >>= 7) bytes_.push_back(static_cast<char>(value | 128));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

class RankWriter {
 public:
  explicit RankWriter(const FlowTable& table) : table_(table) {
    Message meta;
    meta.text(kMetaVersion, "0.0.4");
    text_ = meta.delimited();
  }

  Result<std::string> run(Rank rank) {
    TUTTI_TRY(table_.forSteps(rank, [&](const FlowStep& step) { return add(step); }));
    return std::move(text_);
  }

 private:
  Status add(const FlowStep& step) {
    if (step.channel != channel_) before_.clear();
    channel_ = step.channel;
    std::vector<uint64_t> needs = before_;
    for (const FlowStep::End& end : step.receives) {
      TUTTI_TRY_ASSIGN(const uint64_t id, addMessage(NodeType::kReceive, step, end, {}));
      needs.push_back(id);
    }
    const uint64_t ns = calcNanoseconds(table_, step);
    constexpr uint64_t kPerMicro = 1000;
    Message compute = begin(NodeType::kCompute, step, "step", needs);
    compute.number(kNodeDuration, ns / kPerMicro);
    compute.attribute("duration_ns", kAttrInt64, ns);  // whole microseconds would lose it
    before_ = {next_ - 1};
    text_ += compute.delimited();
    for (const FlowStep::End& end : step.sends)
      TUTTI_TRY(addMessage(NodeType::kSend, step, end, before_).takeStatus());
    return {};
  }

  Message begin(NodeType type, const FlowStep& step, std::string_view what,
                const std::vector<uint64_t>& needs) {
    Message node;
    node.number(kNodeId, next_++);
    node.text(kNodeName, fmt::format("ch{}_p{}_s{}_{}", step.channel, step.piece, step.step, what));
    node.number(kNodeType, static_cast<uint64_t>(type));
    node.numbers(kNodeDataDeps, needs);
    node.attribute("is_cpu_op", kAttrBool, 0);
    return node;
  }

  Result<uint64_t> addMessage(NodeType type, const FlowStep& step, const FlowStep::End& end,
                              const std::vector<uint64_t>& needs) {
    const bool isSend = type == NodeType::kSend;
    TUTTI_TRY_ASSIGN(const uint32_t tag, tagOf(step.channel, end.place));
    const uint64_t id = next_;
    Message node = begin(type, step, isSend ? "send" : "recv", needs);
    const auto self = static_cast<uint64_t>(index(step.rank));
    const auto peer = static_cast<uint64_t>(index(end.peer));
    node.attribute("comm_src", kAttrInt32, isSend ? self : peer);
    node.attribute("comm_dst", kAttrInt32, isSend ? peer : self);
    node.attribute("comm_size", kAttrInt64, step.bytes);
    node.attribute("comm_tag", kAttrInt32, tag);
    text_ += node.delimited();
    return uint64_t{id};
  }

  const FlowTable& table_;
  std::string text_;
  uint64_t next_ = 0;
  int32_t channel_ = -1;
  std::vector<uint64_t> before_;
};

}  // namespace

Status writeChakra(const FlowTable& table, const Sink& sink) {
  for (int32_t rank = 0; rank < table.traffic().rankCount(); ++rank) {
    TUTTI_TRY_ASSIGN(const std::string text, RankWriter(table).run(Rank{rank}));
    TUTTI_TRY(sink(fmt::format(".{}.et", rank), text));
  }
  return {};
}

}  // namespace tutti::sim
