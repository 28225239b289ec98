#include "sim/export.h"

#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "sim/clusters_testing.h"

namespace tutti::sim {
namespace {

using Pair = std::pair<int64_t, int64_t>;
using Bytes = std::map<Pair, uint64_t>;

struct Case {
  Cluster cluster;
  VirtualPlan plan;
  std::unique_ptr<Traffic> traffic;
  std::unique_ptr<FlowTable> table;

  Case(const char* algorithm, const SimCall& call, const std::string& nodes = "2")
      : cluster(clusterOf("nodes: [{count: " + nodes +
                          ", machine: {gpus: 8, sm: 90, nvswitch_links: 18, ports: 8, port_gbps: "
                          "400}}]\nnetwork: {shape: rails, nodes_per_leaf: 1, spines: 2}\n")) {
    plan = planVirtual(cluster).value();
    traffic = std::make_unique<Traffic>(
        Traffic::make(cluster, plan, call,
                      {.algorithm = algorithm, .channelCount = 2, .pieceBytes = 40'000})
            .value());
    table = std::make_unique<FlowTable>(FlowTable::make(*traffic).value());
  }

  std::map<std::string, std::string> write(Format format) const {
    std::map<std::string, std::string> files;
    const Status status =
        writeFlows(format, *table, [&](std::string_view suffix, std::string_view text) -> Status {
          files[std::string(suffix)] += text;
          return {};
        });
    EXPECT_TRUE(status.ok()) << status.message();
    return files;
  }

  Bytes bytes(bool onTheWire = false) const {
    Bytes all;
    for (int32_t channel = 0; channel < traffic->channelCount(); ++channel) {
      for (const Edge& edge : edgesOf(*traffic, channel))
        all[{index(edge.from), index(edge.to)}] += onTheWire ? edge.wireBytes : edge.bytes;
    }
    return all;
  }
};

std::vector<std::unique_ptr<Case>> cases() {
  std::vector<std::unique_ptr<Case>> made;
  made.push_back(std::make_unique<Case>("ring", SimCall{.bytes = 1'000'000}));
  made.push_back(std::make_unique<Case>("tree", SimCall{.bytes = 1'000'000}));
  made.push_back(std::make_unique<Case>(
      "pat", SimCall{.collective = Collective::kAllGather, .bytes = 300'000}));
  return made;
}

std::vector<std::string> linesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Export, JsonLinesHoldRoutesAndWaits) {
  for (const auto& made : cases()) {
    const Case& each = *made;
    Bytes found;
    std::set<int64_t> flows;
    for (const std::string& line : linesOf(each.write(Format::kJsonLines)[""])) {
      const auto json = nlohmann::json::parse(line);
      if (!json.contains("flow")) continue;
      found[{json["from"], json["to"]}] += json["bytes"].get<uint64_t>();
      flows.insert(json["flow"].get<int64_t>());
      EXPECT_FALSE(json["route"].empty());
      for (const int64_t flow : json["data"]) EXPECT_LT(flow, each.table->count());
    }
    EXPECT_EQ(found, each.bytes());
    EXPECT_EQ(static_cast<int64_t>(flows.size()), each.table->count());
  }
}

TEST(Export, SimaiKeepsBytes) {
  for (const auto& made : cases()) {
    const Case& each = *made;
    Bytes found;
    for (const std::string& line : linesOf(each.write(Format::kSimai)[""])) {
      std::vector<std::string> cells;
      std::stringstream stream(line);
      for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
      if (cells[0] == "collective") continue;
      found[{std::stoll(cells[7]), std::stoll(cells[8])}] += std::stoull(cells[9]);
    }
    EXPECT_EQ(found, each.bytes());
  }
}

// ---- GOAL: read and played from the description of the format alone
// ------------------------------

struct GoalOp {
  char type = 'c';
  int64_t peer = 0;
  uint64_t size = 0;
  uint32_t tag = 0;
  std::vector<size_t> needs;
};
using GoalRanks = std::vector<std::vector<GoalOp>>;

GoalRanks parseGoal(const std::string& text) {
  GoalRanks ranks;
  std::map<std::string, size_t> labels;
  for (const std::string& line : linesOf(text)) {
    std::stringstream words(line);
    std::string first, second, size, word, tag;
    words >> first;
    if (first == "num_ranks" || first.empty()) continue;
    if (first == "rank") {
      ranks.emplace_back();
      labels.clear();
      continue;
    }
    if (first == "}") continue;
    words >> second;
    if (second == "requires") {
      words >> word;
      ranks.back()[labels.at(first)].needs.push_back(labels.at(word));
      continue;
    }
    GoalOp op{.type = second[0], .needs = {}};
    words >> size;
    op.size = std::stoull(size);
    if (op.type != 'c') {
      words >> word >> op.peer >> tag >> op.tag;
      EXPECT_EQ(word, op.type == 's' ? "to" : "from");
      EXPECT_EQ(tag, "tag");
    }
    first.pop_back();
    EXPECT_TRUE(labels.emplace(first, ranks.back().size()).second) << "defined twice";
    ranks.back().push_back(op);
  }
  return ranks;
}

template <typename Number>
Number take(const std::string& bytes, size_t& at) {
  Number value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  at += sizeof value;
  return value;
}

GoalRanks parsePacked(const std::string& bytes) {
  size_t at = 0;
  EXPECT_EQ(take<uint64_t>(bytes, at), 4223u);
  const auto count = take<uint32_t>(bytes, at);
  at += 2;
  GoalRanks ranks(count);
  for (uint32_t rank = 0; rank < count; ++rank) {
    auto start = static_cast<size_t>(take<uint64_t>(bytes, at)) + sizeof(uint64_t);
    const auto end = static_cast<size_t>(take<uint64_t>(bytes, at)) + sizeof(uint64_t);
    const auto nodes = take<uint32_t>(bytes, start);
    start += sizeof(uint32_t) * take<uint32_t>(bytes, start);
    ranks[rank].resize(nodes);
    const size_t appendix = start + size_t{39} * nodes;
    for (uint32_t i = 0; i < nodes; ++i) {
      take<uint32_t>(bytes, start);
      const char type = take<char>(bytes, start);
      GoalOp& op = ranks[rank][i];
      op.type = type == 1 ? 's' : type == 2 ? 'r' : 'c';
      op.peer = take<uint32_t>(bytes, start);
      op.size = take<uint64_t>(bytes, start);
      op.tag = take<uint32_t>(bytes, start);
      start += 2;
      const auto followers = take<uint32_t>(bytes, start);
      const auto first = take<uint32_t>(bytes, start);
      start += 8;
      for (uint32_t j = 0; j < followers; ++j) {
        size_t place = appendix + sizeof(uint32_t) * (first + j);
        ranks[rank][take<uint32_t>(bytes, place)].needs.push_back(i);
      }
    }
    (void)end;
  }
  return ranks;
}

// Plays until nothing moves; the bytes received by pair. Everything must have ended.
Bytes play(const GoalRanks& ranks) {
  std::vector<std::vector<bool>> done;
  for (const auto& ops : ranks) done.emplace_back(ops.size());
  std::map<std::tuple<int64_t, int64_t, uint32_t>, std::deque<uint64_t>> wire;
  Bytes received;
  size_t left = 0;
  for (const auto& ops : ranks) left += ops.size();
  for (bool moves = true; moves && left > 0;) {
    moves = false;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (size_t i = 0; i < ranks[rank].size(); ++i) {
        const GoalOp& op = ranks[rank][i];
        const auto isDone = [&](size_t need) { return done[rank][need]; };
        if (done[rank][i] || !std::ranges::all_of(op.needs, isDone)) continue;
        const auto self = static_cast<int64_t>(rank);
        if (op.type == 's') wire[{self, op.peer, op.tag}].push_back(op.size);
        if (op.type == 'r') {
          auto& queue = wire[{op.peer, self, op.tag}];
          if (queue.empty()) continue;
          EXPECT_EQ(queue.front(), op.size);
          received[{op.peer, self}] += queue.front();
          queue.pop_front();
        }
        done[rank][i] = moves = true;
        --left;
      }
    }
  }
  EXPECT_EQ(left, 0u) << "stands still";
  for (const auto& [key, queue] : wire) EXPECT_TRUE(queue.empty());
  return received;
}

TEST(Export, GoalLoadsInAnInterpreterAndCompletes) {
  for (const auto& made : cases()) {
    const Case& each = *made;
    const GoalRanks text = parseGoal(each.write(Format::kGoal)[""]);
    EXPECT_EQ(text.size(), 16u);
    EXPECT_EQ(play(text), each.bytes());
    EXPECT_EQ(play(parsePacked(each.write(Format::kGoalBinary)[""])), each.bytes());
  }
}

// ---- Chakra
// --------------------------------------------------------------------------------------

uint64_t varint(const std::string& bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(at++));
    value |= uint64_t{byte & 127u} << shift;
    if (byte < 128) return value;
  }
}

// The fields of a message: numbers, and texts of nested messages.
std::multimap<uint64_t, std::pair<uint64_t, std::string>> fieldsOf(const std::string& bytes) {
  std::multimap<uint64_t, std::pair<uint64_t, std::string>> fields;
  for (size_t at = 0; at < bytes.size();) {
    const uint64_t key = varint(bytes, at);
    const uint64_t value = varint(bytes, at);
    std::string text;
    if ((key & 7) == 2) {
      text = bytes.substr(at, value);
      at += value;
    }
    fields.emplace(key >> 3, std::pair(value, text));
  }
  return fields;
}

TEST(Export, ChakraKeepsBytesAndWidths) {
  for (const auto& made : cases()) {
    const Case& each = *made;
    Bytes sent, received;
    for (const auto& [suffix, bytes] : each.write(Format::kChakra)) {
      bool isMeta = true;
      for (size_t at = 0; at < bytes.size();) {
        const uint64_t length = varint(bytes, at);
        const auto node = fieldsOf(bytes.substr(at, length));
        at += length;
        if (std::exchange(isMeta, false)) continue;
        const uint64_t type = node.find(3)->second.first;
        std::map<std::string, uint64_t> attributes;
        const auto [begin, end] = node.equal_range(10);
        for (auto it = begin; it != end; ++it) {
          const auto attribute = fieldsOf(it->second.second);
          const std::string name = attribute.find(1)->second.second;
          const uint64_t field = attribute.rbegin()->first;
          const bool isSize = name == "comm_size" || name == "duration_ns";
          EXPECT_EQ(field, name == "is_cpu_op" ? 27u : isSize ? 9u : 7u) << name;
          attributes[name] = attribute.rbegin()->second.first;
        }
        if (type != 5 && type != 6) continue;
        (type == 5 ? sent : received)[{attributes["comm_src"], attributes["comm_dst"]}] +=
            attributes["comm_size"];
      }
    }
    EXPECT_EQ(sent, each.bytes());
    EXPECT_EQ(received, each.bytes());
  }
}

// ---- MSCCL, htsim, topology
// ----------------------------------------------------------------------

std::string attribute(const std::string& line, const std::string& name) {
  const size_t at = line.find(" " + name + "=\"");
  if (at == std::string::npos) return "";
  const size_t start = at + name.size() + 3;
  return line.substr(start, line.find('"', start) - start);
}

TEST(Export, MscclRingsFollowItsRules) {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
        Collective::kBroadcast, Collective::kReduce}) {
    const Case each("ring", {.collective = collective, .bytes = 1'000'000});
    const std::string text = each.write(Format::kMsccl)[""];
    int64_t loop = 0, inputs = 0, gpu = -1;
    std::map<Pair, int64_t> sends, receives;
    int64_t to = -1, from = -1, steps = 0;
    for (const std::string& line : linesOf(text)) {
      if (line.starts_with("<algo")) loop = std::stoll(attribute(line, "nchunksperloop"));
      if (line.find("<gpu") != std::string::npos) {
        gpu = std::stoll(attribute(line, "id"));
        inputs = std::stoll(attribute(line, "i_chunks"));
        EXPECT_EQ(loop % inputs, 0);
      }
      if (line.find("<tb") != std::string::npos) {
        to = std::stoll(attribute(line, "send"));
        from = std::stoll(attribute(line, "recv"));
        EXPECT_NE(to, gpu);
        EXPECT_NE(from, gpu);
        steps = 0;
      }
      if (line.find("<step") == std::string::npos) continue;
      EXPECT_EQ(std::stoll(attribute(line, "s")), steps++);
      EXPECT_LE(steps, 256);
      EXPECT_LT(std::stoll(attribute(line, "srcoff")), loop);
      const std::string type = attribute(line, "type");
      EXPECT_TRUE(
          (std::set<std::string>{"s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy"}).contains(type));
      if (type.ends_with("s")) ++sends[{gpu, to}];
      if (type.starts_with("r")) ++receives[{from, gpu}];
    }
    EXPECT_EQ(sends, receives);
    EXPECT_FALSE(sends.empty());
  }
}

TEST(Export, MscclRefusesWhatNeedsMorePeers) {
  const Case each("tree", {.bytes = 1'000'000});
  const Status status = writeFlows(Format::kMsccl, *each.table,
                                   [](std::string_view, std::string_view) { return Status(); });
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("one each way"));
}

// Every flow starts: at once, or by a trigger that as many flows pull as it waits for.
TEST(Export, HtsimTriggersAllFlows) {
  const Case each("ring", {.bytes = 100'000});
  Bytes found;
  std::map<std::string, int64_t> pulls, wants;
  std::map<std::string, std::string> started;
  for (const std::string& line : linesOf(each.write(Format::kHtsim)[""])) {
    std::stringstream words(line);
    std::string first, word, value, previous;
    words >> first;
    std::map<std::string, std::string> facts;
    while (words >> word >> value) facts[word] = value;
    if (first == "trigger") {
      wants[facts["id"]] = facts.contains("barrier") ? -1 : 1;
    } else if (first.find("->") != std::string::npos) {
      const size_t arrow = first.find("->");
      found[{std::stoll(first.substr(0, arrow)), std::stoll(first.substr(arrow + 2))}] +=
          std::stoull(facts["size"]);
      if (facts.contains("recv_done_trigger")) ++pulls[facts["recv_done_trigger"]];
      if (facts.contains("trigger")) started[facts["id"]] = facts["trigger"];
    }
  }
  EXPECT_EQ(found, each.bytes(true));
  EXPECT_FALSE(started.empty());
  for (const auto& [flow, trigger] : started) EXPECT_GT(pulls[trigger], 0) << flow;
}

TEST(Export, TopologyJoinsAllGpus) {
  const Case each("ring", {.bytes = 1000}, "4");
  const auto lines = linesOf(each.write(Format::kSimaiTopology)[""]);
  std::stringstream head(lines[0]);
  int64_t nodes = 0, perServer = 0, nvSwitches = 0, switches = 0, links = 0;
  head >> nodes >> perServer >> nvSwitches >> switches >> links;
  EXPECT_EQ(perServer, 8);
  EXPECT_EQ(nvSwitches, 4);
  EXPECT_EQ(nodes, 32 + nvSwitches + switches);
  EXPECT_EQ(links, static_cast<int64_t>(lines.size()) - 2);
  // One component.
  std::vector<int64_t> group(static_cast<size_t>(nodes));
  for (size_t i = 0; i < group.size(); ++i) group[i] = static_cast<int64_t>(i);
  for (size_t i = 2; i < lines.size(); ++i) {
    std::stringstream line(lines[i]);
    size_t from = 0, to = 0;
    line >> from >> to;
    const int64_t old = group.at(to), now = group.at(from);
    for (int64_t& number : group) number = number == old ? now : number;
  }
  EXPECT_EQ(std::set<int64_t>(group.begin(), group.end()).size(), 1u);
}

std::string htsimOf(const std::string& network, int32_t nodes) {
  const Cluster cluster = clusterOf(
      fmt::format("nodes: [{{count: {}, machine: {{gpus: 4, sm: 90, nvswitch_links: 18, ports: 4, "
                  "port_gbps: 400}}}}]\nnetwork: {}\n",
                  nodes, network));
  std::string text;
  const Status status =
      writeHtsimTopology(cluster, [&text](std::string_view, std::string_view more) {
        text += more;
        return Status();
      });
  return status.ok() ? text : std::string(status.message());
}

TEST(Export, HtsimTopologyHasTheNetworksTiers) {
  EXPECT_EQ(htsimOf("{shape: leaf_spine, nodes_per_leaf: 2, oversubscription: 2}", 8),
            "Nodes 32\nTiers 2\nPodsize 32\n"
            "Tier 0\nDownlink_speed_Gbps 400\nRadix_Down 8\nRadix_Up 4\nDownlink_Latency_ns 0\n"
            "Switch_Latency_ns 350\nBundle 1\n"
            "Tier 1\nDownlink_speed_Gbps 400\nRadix_Down 4\nDownlink_Latency_ns 0\n"
            "Switch_Latency_ns 350\nBundle 1\n");
  const std::string three = htsimOf(
      "{shape: fat_tree, nodes_per_leaf: 1, leaves_per_pod: 4, core_oversubscription: 2}", 16);
  EXPECT_THAT(three, testing::HasSubstr("Nodes 64\nTiers 3\nPodsize 16\n"));
  EXPECT_THAT(three, testing::HasSubstr("Radix_Down 4\nRadix_Up 2\n"));
  EXPECT_THAT(three, testing::HasSubstr("Tier 2\nDownlink_speed_Gbps 400\nRadix_Down 4\nDownlink"));
}

TEST(Export, HtsimTopologyRefusesWhatItCannotSay) {
  EXPECT_THAT(htsimOf("{shape: rails, nodes_per_leaf: 2}", 8),
              testing::HasSubstr("the form has leaf_spine and fat_tree"));
  EXPECT_THAT(htsimOf("{shape: leaf_spine, nodes_per_leaf: 3}", 8),
              testing::HasSubstr("full leaves and pods, of 3 nodes"));
}

TEST(Export, TooManyFlowsAreAnError) {
  const Case each("ring", {.bytes = 1'000'000});
  EXPECT_FALSE(FlowTable::make(*each.traffic, 10).ok());
}

TEST(Export, ChromeTraceIsJson) {
  const std::string text = chromeTrace(
      std::vector<Span>{{.startUs = 1, .endUs = 2}, {.startUs = 3, .endUs = 4}}, Rank{1});
  EXPECT_EQ(nlohmann::json::parse(text)["traceEvents"].size(), 2u);
}

}  // namespace
}  // namespace tutti::sim
