#include "sim/trace_file.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>

#include "base/units.h"
#include "sim/yaml.h"

namespace tutti::sim {
namespace {

constexpr YamlLimits kLineLimits{.bytes = 64_MiB, .nodes = 4'000'000, .depth = 8};
constexpr double kMostUs = 1e12;

// "all_reduce" and "AllReduce" are one.
std::string plainName(std::string_view text) {
  std::string plain;
  for (const char letter : text) {
    if (letter != '_') plain.push_back(static_cast<char>(std::tolower(letter)));
  }
  return plain;
}

// The enumerator of this name among the first `count`.
template <typename Enum>
Result<Enum> named(const YamlNode& map, std::string_view key, int count, Enum fallback) {
  const YamlNode* node = map.find(key);
  if (node == nullptr) return Enum{fallback};
  std::string known;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    if (plainName(name(value)) == plainName(node->text())) return Enum{value};
    known += fmt::format(" {}", name(value));
  }
  return node->fault(fmt::format("{} is {}, wanted one of{}", key, node->text(), known));
}

Result<Rank> rankIn(const YamlNode& node, int32_t rankCount) {
  int32_t rank = -1;
  const std::string& text = node.text();
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), rank);
  const bool isWhole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (node.kind() == YamlNode::Kind::kScalar && isWhole && rank >= 0 && rank < rankCount)
    return Rank{rank};
  return node.fault(fmt::format("rank {} is none of 0 to {}", text, rankCount - 1));
}

Result<std::vector<Rank>> ranksIn(const YamlNode& list, int32_t rankCount) {
  if (!list.isList() || list.items().empty()) return list.fault("wanted a list of ranks");
  std::vector<Rank> ranks;
  std::vector<bool> isThere(static_cast<size_t>(rankCount));
  for (const YamlNode& each : list.items()) {
    TUTTI_TRY_ASSIGN(const Rank rank, rankIn(each, rankCount));
    if (isThere[static_cast<size_t>(index(rank))])
      return each.fault(fmt::format("rank {} stands here twice", index(rank)));
    isThere[static_cast<size_t>(index(rank))] = true;
    ranks.push_back(rank);
  }
  return ranks;
}

class TraceReader {
 public:
  TraceReader(std::string_view text, const std::string& source, int32_t rankCount)
      : text_(text),
        source_(source),
        rankCount_(rankCount),
        last_(static_cast<size_t>(rankCount)),
        ids_(static_cast<size_t>(rankCount)) {
    std::vector<Rank> all;
    for (int32_t rank = 0; rank < rankCount; ++rank) all.push_back(Rank{rank});
    addGroup("world", std::move(all));
  }

  Result<Trace> run() {
    const size_t begin = text_.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return invalidArgument("{}:1:1: nothing in it", source_);
    if (text_[begin] == '[') {
      TUTTI_TRY_ASSIGN(const YamlNode root, parseYaml(text_, source_, kLineLimits));
      if (!root.isList()) return root.fault("wanted a list of objects, or an object a line");
      for (const YamlNode& each : root.items()) TUTTI_TRY(read(each));
    } else {
      TUTTI_TRY(readLines());
    }
    return std::move(trace_);
  }

 private:
  Status readLines() {
    YamlLimits limits = kLineLimits;
    for (size_t at = 0; at < text_.size(); ++limits.firstLine) {
      const size_t end = std::min(text_.find('\n', at), text_.size());
      const std::string_view line = text_.substr(at, end - at);
      at = end + 1;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      TUTTI_TRY_ASSIGN(const YamlNode object, parseYaml(line, source_, limits));
      TUTTI_TRY(read(object));
    }
    return {};
  }

  void addGroup(const std::string& name, std::vector<Rank> ranks) {
    auto& family = families_[name];
    if (family.empty()) family.resize(static_cast<size_t>(rankCount_), -1);
    for (const Rank rank : ranks)
      family[static_cast<size_t>(index(rank))] = static_cast<int32_t>(trace_.groups.size());
    trace_.groups.push_back({name, std::move(ranks)});
  }

  Status read(const YamlNode& object) {
    if (!object.isMap()) return object.fault("wanted an object: a group, a call or compute_us");
    if (object.find("call") != nullptr) return readCall(object);
    if (object.find("compute_us") != nullptr) return readCompute(object);
    return readGroup(object);
  }

  Status readGroup(const YamlNode& object) {
    TUTTI_TRY(object.allowKeys({"group", "ranks", "consecutive", "every"}));
    TUTTI_TRY_ASSIGN(const std::string name, object.string("group", std::nullopt));
    if (families_.contains(name)) return object.fault(fmt::format("{} is a group already", name));
    if (const YamlNode* ranks = object.find("ranks"); ranks != nullptr) {
      const bool isFamily =
          ranks->isList() && !ranks->items().empty() && ranks->items().front().isList();
      if (!isFamily) {
        TUTTI_TRY_ASSIGN(std::vector<Rank> members, ranksIn(*ranks, rankCount_));
        addGroup(name, std::move(members));
        return {};
      }
      for (const YamlNode& each : ranks->items()) {
        TUTTI_TRY_ASSIGN(std::vector<Rank> members, ranksIn(each, rankCount_));
        for (const Rank rank : members) {
          if (families_.contains(name) && families_[name][static_cast<size_t>(index(rank))] >= 0)
            return each.fault(fmt::format("rank {} is in two groups {}", index(rank), name));
        }
        addGroup(name, std::move(members));
      }
      return {};
    }
    return readFamily(object, name);
  }

  // Neighbours by `consecutive` ranks, or those that are as far from a multiple of `every`.
  Status readFamily(const YamlNode& object, const std::string& name) {
    TUTTI_TRY_ASSIGN(const int64_t consecutive, object.integer("consecutive", {1, rankCount_, 0}));
    TUTTI_TRY_ASSIGN(const int64_t every, object.integer("every", {1, rankCount_, 0}));
    const int64_t step = std::max(consecutive, every);
    if ((consecutive > 0) == (every > 0))
      return object.fault("wanted ranks: [...], consecutive: N or every: N");
    if (rankCount_ % step != 0)
      return object.fault(
          fmt::format("{} ranks are no whole number of times {}", rankCount_, step));
    const int64_t groups = consecutive > 0 ? rankCount_ / step : step;
    for (int64_t group = 0; group < groups; ++group) {
      std::vector<Rank> members;
      for (int64_t i = 0; i < rankCount_ / groups; ++i)
        members.push_back(
            Rank{static_cast<int32_t>(consecutive > 0 ? group * step + i : i * step + group)});
      addGroup(name, std::move(members));
    }
    return {};
  }

  // Of a step for several ranks, those.
  Result<std::vector<Rank>> whoDoes(const YamlNode& object, const std::vector<int32_t>* family) {
    const YamlNode* one = object.find("rank");
    const YamlNode* many = object.find("ranks");
    if (one != nullptr && many != nullptr) return object.fault("wanted rank or ranks, not both");
    std::vector<Rank> ranks;
    if (one != nullptr) {
      TUTTI_TRY_ASSIGN(const Rank rank, rankIn(*one, rankCount_));
      ranks.push_back(rank);
    } else if (many != nullptr) {
      TUTTI_TRY_ASSIGN(ranks, ranksIn(*many, rankCount_));
    } else {
      for (int32_t rank = 0; rank < rankCount_; ++rank) {
        if (family == nullptr || (*family)[static_cast<size_t>(rank)] >= 0)
          ranks.push_back(Rank{rank});
      }
    }
    if (trace_.steps.size() + ranks.size() > kMostSteps)
      return object.fault(fmt::format("more than {} steps of ranks", kMostSteps));
    return ranks;
  }

  Result<int32_t> streamOf(const YamlNode& object) {
    TUTTI_TRY_ASSIGN(const std::string name, object.string("stream", "main"));
    const auto [at, isNew] =
        streams_.try_emplace(name, static_cast<int32_t>(trace_.streams.size()));
    if (isNew) trace_.streams.push_back(name);
    return int32_t{at->second};
  }

  // Adds the step to the trace, after those of its rank that it names.
  Status place(const YamlNode& object, TraceStep step) {
    const auto rank = static_cast<size_t>(index(step.rank));
    if (const YamlNode* after = object.find("after"); after != nullptr) {
      if (!after->isList()) return after->fault("after is a list of ids");
      for (const YamlNode& each : after->items()) {
        const auto known = ids_[rank].find(each.text());
        if (known == ids_[rank].end())
          return each.fault(fmt::format("rank {} has done nothing called {}", rank, each.text()));
        step.after.push_back(known->second);
      }
    }
    const auto number = static_cast<int32_t>(trace_.steps.size());
    if (const YamlNode* id = object.find("id"); id != nullptr) ids_[rank][id->text()] = number;
    step.place = fmt::format("{}:{}", source_, object.position().line);
    trace_.steps.push_back(std::move(step));
    return {};
  }

  Status readCompute(const YamlNode& object) {
    TUTTI_TRY(object.allowKeys({"compute_us", "name", "stream", "rank", "ranks", "id", "after"}));
    TraceStep step;
    TUTTI_TRY_ASSIGN(step.computeUs, object.real("compute_us", {0, kMostUs}));
    TUTTI_TRY_ASSIGN(step.name, object.string("name", "compute"));
    TUTTI_TRY_ASSIGN(step.stream, streamOf(object));
    TUTTI_TRY_ASSIGN(const std::vector<Rank> ranks, whoDoes(object, nullptr));
    for (const Rank rank : ranks) {
      step.rank = rank;
      last_[static_cast<size_t>(index(rank))] = {};
      TUTTI_TRY(place(object, step));
    }
    return {};
  }

  Status readCall(const YamlNode& object) {
    TUTTI_TRY(object.allowKeys({"call", "count", "type", "op", "root", "peer", "offset", "group",
                                "stream", "rank", "ranks", "id", "after", "batch", "name"}));
    TraceStep step;
    TraceCall call;
    TUTTI_TRY_ASSIGN(call.shape.collective,
                     named(object, "call", kCollectiveCount, Collective::kAllReduce));
    TUTTI_TRY_ASSIGN(call.shape.type, named(object, "type", kDataTypeCount, DataType::kUint8));
    TUTTI_TRY_ASSIGN(call.shape.op, named(object, "op", kReduceOpCount, ReduceOp::kSum));
    constexpr int64_t kMostCount = int64_t{1} << 48;
    TUTTI_TRY_ASSIGN(const int64_t count, object.integer("count", {0, kMostCount}));
    call.shape.count = static_cast<uint64_t>(count);
    TUTTI_TRY_ASSIGN(step.name, object.string("name", std::string(name(call.shape.collective))));
    TUTTI_TRY_ASSIGN(step.stream, streamOf(object));
    TUTTI_TRY_ASSIGN(const std::string group, object.string("group", "world"));
    const auto family = families_.find(group);
    if (family == families_.end())
      return object.fault(fmt::format("{} is no group; a line before must say of whom", group));
    TUTTI_TRY_ASSIGN(const int64_t batch, object.integer("batch", {0, INT64_MAX, 0}));
    TUTTI_TRY_ASSIGN(const std::vector<Rank> ranks, whoDoes(object, &family->second));
    for (const Rank rank : ranks) {
      call.group = family->second[static_cast<size_t>(index(rank))];
      if (call.group < 0)
        return object.fault(fmt::format("rank {} is in no group {}", index(rank), group));
      TUTTI_TRY_ASSIGN(call.shape.peer, peerOf(object, call, rank));
      step.rank = rank;
      step.calls = {call};
      TUTTI_TRY(placeCall(object, step, batch));
    }
    return {};
  }

  // The root, or a transfer's other end: given, or so many places further in the group.
  Result<Rank> peerOf(const YamlNode& object, const TraceCall& call, Rank self) const {
    const auto& members = trace_.groups[static_cast<size_t>(call.group)].ranks;
    const auto count = static_cast<int64_t>(members.size());
    const Collective collective = call.shape.collective;
    const bool isTransfer = isPointToPoint(collective);
    if (!isTransfer) {
      TUTTI_TRY_ASSIGN(const int64_t root, object.integer("root", {0, count - 1, 0}));
      return Rank{static_cast<int32_t>(root)};
    }
    const bool isGiven = object.find("peer") != nullptr;
    if (isGiven == (object.find("offset") != nullptr))
      return object.fault("wanted either peer: PLACE or offset: N");
    TUTTI_TRY_ASSIGN(const int64_t peer, object.integer("peer", {0, count - 1, 0}));
    TUTTI_TRY_ASSIGN(const int64_t offset, object.integer("offset", {-count, count, 0}));
    if (isGiven) return Rank{static_cast<int32_t>(peer)};
    const int64_t own = std::ranges::find(members, self) - members.begin();
    return Rank{static_cast<int32_t>((own + offset + count) % count)};
  }

  // Sends and receives of a batch that follow each other are one step.
  Status placeCall(const YamlNode& object, const TraceStep& step, int64_t batch) {
    LastBatch& last = last_[static_cast<size_t>(index(step.rank))];
    const Collective collective = step.calls.front().shape.collective;
    const bool isTransfer = isPointToPoint(collective);
    const bool isMore = batch > 0 && isTransfer && last.batch == batch &&
                        last.stream == step.stream && object.find("after") == nullptr;
    if (isMore) {
      trace_.steps[static_cast<size_t>(last.step)].calls.push_back(step.calls.front());
      return {};
    }
    last = {.batch = isTransfer ? batch : 0,
            .stream = step.stream,
            .step = static_cast<int32_t>(trace_.steps.size())};
    return place(object, step);
  }

  struct LastBatch {
    int64_t batch = 0;
    int32_t stream = 0;
    int32_t step = 0;
  };

  const std::string_view text_;
  const std::string& source_;
  const int32_t rankCount_;
  Trace trace_;
  std::map<std::string, std::vector<int32_t>> families_;  // by name: the group of each rank, or -1
  std::map<std::string, int32_t> streams_;
  std::vector<LastBatch> last_;                      // by rank
  std::vector<std::map<std::string, int32_t>> ids_;  // by rank
};

}  // namespace

Result<Trace> parseTrace(std::string_view text, const std::string& source, int32_t rankCount) {
  return TraceReader(text, source, rankCount).run();
}

namespace {

// What a caller named may hold anything.
std::string quoted(std::string_view text) {
  std::string made = "\"";
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (each == '"' || each == '\\') {
      made += '\\';
      made += each;
    } else if (byte < ' ' || byte >= 127) {
      made += '?';  // names differ by a number anyhow
    } else {
      made += each;
    }
  }
  return made + '"';
}

}  // namespace

std::string formatTraceLine(const TraceLine& line) {
  const plan::CallShape& shape = *line.shape;
  std::string text = fmt::format(R"({{"call":"{}","count":{},"type":"{}","group":{},"rank":{})",
                                 name(shape.collective), shape.count, name(shape.type),
                                 quoted(line.group), index(line.rank));
  if (isReduction(shape.collective)) text += fmt::format(R"(,"op":"{}")", name(shape.op));
  if (hasRoot(shape.collective)) text += fmt::format(R"(,"root":{})", index(shape.peer));
  if (isPointToPoint(shape.collective)) text += fmt::format(R"(,"peer":{})", index(shape.peer));
  if (line.stream != 0) text += fmt::format(R"(,"stream":"{:#x}")", line.stream);
  if (line.batch != 0) text += fmt::format(R"(,"batch":{})", line.batch);
  return text + "}\n";
}

std::string formatTraceGroup(std::string_view name, std::span<const Rank> ranks) {
  std::string text = fmt::format(R"({{"group":{},"ranks":[)", quoted(name));
  for (size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ",", index(ranks[i]));
  return text + "]}\n";
}

}  // namespace tutti::sim
