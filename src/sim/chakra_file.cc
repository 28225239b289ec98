#include "sim/chakra_file.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace tutti::sim {
namespace {

// Field numbers of the schema.
constexpr uint64_t kNodeId = 1, kNodeName = 2, kNodeType = 3, kControlDeps = 4, kDataDeps = 5,
                   kDuration = 7, kAttribute = 10;
constexpr uint64_t kAttrName = 1, kAttrInt32 = 7, kAttrInt64 = 9, kAttrUint32 = 11,
                   kAttrUint64 = 13, kAttrString = 29;

enum class NodeType : uint64_t { kSend = 5, kReceive = 6, kCollective = 7 };

constexpr uint64_t kMostBytes = uint64_t{1} << 48;
constexpr double kNsPerUs = 1e3;

// The collective of an attribute comm_type; nothing for one that no call of ours is.
std::optional<Collective> collectiveOf(uint64_t number) {
  switch (number) {
    case 0: return Collective::kAllReduce;
    case 1: return Collective::kReduce;
    case 2: return Collective::kAllGather;
    case 3: return Collective::kGather;
    case 4: return Collective::kScatter;
    case 5: return Collective::kBroadcast;
    case 6: return Collective::kAllToAll;
    case 7:
    case 8: return Collective::kReduceScatter;
    case 9: return Collective::kAllReduce;  // a barrier: nothing is as short
    default: return std::nullopt;
  }
}

// A message's fields one after the other. Every length is checked against what is there.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  // False at the end, and where the message is broken: then isBroken().
  bool next() {
    if (at_ == bytes_.size() || isBroken_) return false;
    uint64_t key = 0;
    if (!varint(key)) return false;
    number_ = key >> 3;
    isText_ = (key & 7) == 2;
    switch (key & 7) {
      case 0: return varint(value_);
      case 1: return skip(8);
      case 2: {
        uint64_t length = 0;
        return varint(length) && take(length);
      }
      case 5: return skip(4);
      default: return fail();
    }
  }
  bool varint(uint64_t& value) {
    value = 0;
    for (uint32_t shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return true;
    }
    return fail();
  }
  bool take(uint64_t length) {
    if (length > bytes_.size() - at_) return fail();
    text_ = bytes_.substr(at_, static_cast<size_t>(length));
    at_ += static_cast<size_t>(length);
    return true;
  }

  uint64_t number() const { return number_; }
  uint64_t value() const { return value_; }
  std::string_view text() const { return text_; }
  bool isText() const { return isText_; }  // else value() was read
  bool isBroken() const { return isBroken_; }
  bool isAtEnd() const { return at_ == bytes_.size(); }
  size_t at() const { return at_; }

 private:
  bool skip(uint64_t length) { return take(length); }
  bool fail() {
    isBroken_ = true;
    return false;
  }

  std::string_view bytes_;
  size_t at_ = 0;
  uint64_t number_ = 0;
  uint64_t value_ = 0;
  std::string_view text_;
  bool isText_ = false;
  bool isBroken_ = false;
};

struct Node {
  uint64_t id = 0;
  std::string_view name;
  uint64_t type = 0;
  uint64_t durationUs = 0;
  std::vector<uint64_t> after;
  std::map<std::string_view, uint64_t> numbers;
  std::string_view group;

  uint64_t number(std::string_view key) const {
    const auto found = numbers.find(key);
    return found == numbers.end() ? 0 : found->second;
  }
};

bool readAttribute(std::string_view bytes, Node& node) {
  Fields fields(bytes);
  std::string_view name, text;
  std::optional<uint64_t> value;
  while (fields.next()) {
    switch (fields.number()) {
      case kAttrName: name = fields.text(); break;
      case kAttrInt32:
      case kAttrInt64:
      case kAttrUint32:
      case kAttrUint64: value = fields.value(); break;
      case kAttrString: text = fields.text(); break;
      default: break;
    }
  }
  if (value) node.numbers[name] = *value;
  if (name == "pg_name") node.group = text;
  return !fields.isBroken();
}

// A list of numbers, packed; an older writer's numbers one by one come with every field of theirs.
bool readDeps(const Fields& field, bool isPacked, Node& node) {
  if (!isPacked) {
    node.after.push_back(field.value());
    return true;
  }
  Fields list(field.text());
  uint64_t value = 0;
  while (!list.isAtEnd()) {
    if (!list.varint(value)) return false;
    node.after.push_back(value);
  }
  return true;
}

std::optional<Node> readNode(std::string_view bytes) {
  Fields fields(bytes);
  Node node;
  while (fields.next()) {
    switch (fields.number()) {
      case kNodeId: node.id = fields.value(); break;
      case kNodeName: node.name = fields.text(); break;
      case kNodeType: node.type = fields.value(); break;
      case kControlDeps:
      case kDataDeps:
        if (!readDeps(fields, fields.isText(), node)) return std::nullopt;
        break;
      case kDuration: node.durationUs = fields.value(); break;
      case kAttribute:
        if (!readAttribute(fields.text(), node)) return std::nullopt;
        break;
      default: break;
    }
  }
  if (fields.isBroken()) return std::nullopt;
  return node;
}

class ChakraReader {
 public:
  ChakraReader(const ChakraFile& file, int32_t rankCount, Trace& trace)
      : file_(file), rankCount_(rankCount), trace_(trace) {}

  Status run() {
    Fields messages(file_.text);
    bool isFirst = true;
    while (!messages.isAtEnd()) {
      const size_t at = messages.at();
      uint64_t length = 0;
      const bool isWhole = messages.varint(length) && messages.take(length);
      const std::optional<Node> node = isWhole ? readNode(messages.text()) : std::nullopt;
      if (!node)
        return invalidArgument("{}: byte {}: no message of a Chakra trace", file_.source, at);
      // The first is about the trace as a whole.
      if (!std::exchange(isFirst, false)) TUTTI_TRY(add(*node));
    }
    if (isFirst) return invalidArgument("{}: byte 0: nothing in it", file_.source);
    for (const auto& [step, ids] : waits_) {
      for (const uint64_t id : ids) {
        const auto known = steps_.find(id);
        TraceStep& waiting = trace_.steps[static_cast<size_t>(step)];
        if (known == steps_.end())
          return invalidArgument("{}: it comes after node {}, which there is not", waiting.place,
                                 id);
        waiting.after.push_back(known->second);
      }
    }
    return {};
  }

 private:
  Status add(const Node& node) {
    TraceStep step{.rank = file_.rank,
                   .name = std::string(node.name),
                   .place = fmt::format("{}: node {}", file_.source, node.id)};
    const auto number = static_cast<int32_t>(trace_.steps.size());
    if (!steps_.try_emplace(node.id, number).second)
      return invalidArgument("{}: it is there twice", step.place);
    switch (static_cast<NodeType>(node.type)) {
      case NodeType::kSend:
      case NodeType::kReceive: {
        TUTTI_TRY_ASSIGN(TraceCall call, transferOf(node, step));
        step.calls.push_back(call);
        break;
      }
      case NodeType::kCollective: {
        TUTTI_TRY_ASSIGN(TraceCall call, collectiveCallOf(node, step));
        step.calls.push_back(call);
        break;
      }
      default: {
        // Ours say more than the schema's whole microseconds.
        const uint64_t ns = node.number("duration_ns");
        step.computeUs =
            ns > 0 ? static_cast<double>(ns) / kNsPerUs : static_cast<double>(node.durationUs);
      }
    }
    waits_.emplace_back(number, node.after);
    trace_.steps.push_back(std::move(step));
    return {};
  }

  Result<TraceCall> callOf(const Node& node, const TraceStep& step) const {
    const uint64_t bytes = node.number("comm_size");
    if (bytes > kMostBytes)
      return invalidArgument("{}: comm_size is {}, wanted at most {}", step.place, bytes,
                             kMostBytes);
    const std::string_view wanted = node.group.empty() ? "world" : node.group;
    for (size_t i = 0; i < trace_.groups.size(); ++i) {
      const TraceGroup& group = trace_.groups[i];
      if (group.name == wanted && std::ranges::find(group.ranks, step.rank) != group.ranks.end())
        return TraceCall{.group = static_cast<int32_t>(i),
                         .shape = {.type = DataType::kUint8, .count = bytes}};
    }
    return invalidArgument("{}: nobody says which ranks the group {} of rank {} has", step.place,
                           wanted, index(step.rank));
  }

  Result<TraceCall> transferOf(const Node& node, const TraceStep& step) const {
    TUTTI_TRY_ASSIGN(TraceCall call, callOf(node, step));
    const bool isSend = static_cast<NodeType>(node.type) == NodeType::kSend;
    call.shape.collective = isSend ? Collective::kSend : Collective::kRecv;
    const uint64_t peer = node.number(isSend ? "comm_dst" : "comm_src");
    if (peer >= static_cast<uint64_t>(rankCount_))
      return invalidArgument("{}: its peer is rank {}, wanted 0 to {}", step.place, peer,
                             rankCount_ - 1);
    const auto& members = trace_.groups[static_cast<size_t>(call.group)].ranks;
    const auto at = std::ranges::find(members, Rank{static_cast<int32_t>(peer)});
    if (at == members.end())
      return invalidArgument("{}: rank {} is not in its group", step.place, peer);
    call.shape.peer = Rank{static_cast<int32_t>(at - members.begin())};
    return call;
  }

  Result<TraceCall> collectiveCallOf(const Node& node, const TraceStep& step) const {
    TUTTI_TRY_ASSIGN(TraceCall call, callOf(node, step));
    const auto collective = collectiveOf(node.number("comm_type"));
    if (!collective)
      return invalidArgument("{}: comm_type is {}, wanted 0 to 9", step.place,
                             node.number("comm_type"));
    call.shape.collective = *collective;
    const uint64_t root = node.number("root");
    const auto members = trace_.groups[static_cast<size_t>(call.group)].ranks.size();
    if (root >= members)
      return invalidArgument("{}: the root is {}, wanted 0 to {}", step.place, root, members - 1);
    call.shape.peer = Rank{static_cast<int32_t>(root)};
    return call;
  }

  const ChakraFile& file_;
  const int32_t rankCount_;
  Trace& trace_;
  std::map<uint64_t, int32_t> steps_;  // by the node's id
  std::vector<std::pair<int32_t, std::vector<uint64_t>>> waits_;
};

}  // namespace

Result<Trace> parseChakra(const std::vector<ChakraFile>& files, Trace groups) {
  const auto rankCount = static_cast<int32_t>(files.size());
  for (const ChakraFile& file : files) TUTTI_TRY(ChakraReader(file, rankCount, groups).run());
  return groups;
}

}  // namespace tutti::sim
