#include "tools/explain_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "plan/choice_table.h"
#include "tools/terminal.h"

namespace tutti::tools {
namespace {

using nlohmann::ordered_json;

bool isTransfer(Collective collective) {
  return collective == Collective::kSend || collective == Collective::kRecv;
}

// Of a send or receive the rank after the receiver.
Rank senderOf(const ExplainedCall& call) {
  return isTransfer(call.collective) ? Rank{(index(call.root) + 1) % call.rankCount} : Rank{0};
}

plan::CallShape shapeOf(const ExplainedCall& call, uint64_t count) {
  const bool isReceive = call.collective == Collective::kRecv;
  return {.collective = call.collective,
          .peer = isReceive ? senderOf(call) : call.root,
          .count = count};
}

// The rank the planner plans for: that of a send or receive is given by the call.
plan::Agreement agreementOf(const ExplainedCall& call, bool readsPeers) {
  plan::Agreement agreement{.rank = call.rank,
                            .rankCount = call.rankCount,
                            .geometry = plan::linkGeometry(call.bufferBytes),
                            .algorithms = call.algorithms,
                            .readsPeers = readsPeers,
                            .readsByKernel = !readsPeers};
  if (call.collective == Collective::kSend) agreement.rank = senderOf(call);
  if (call.collective == Collective::kRecv) agreement.rank = call.root;
  return agreement;
}

void addAlgorithms(Explanation& explanation) {
  const ExplainedCall& call = explanation.call;
  for (const schedule::Algorithm& algorithm : schedule::algorithms(call.collective)) {
    const auto bytes = static_cast<double>(call.bytes);
    explanation.algorithms.push_back(
        {.algorithm = &algorithm,
         .cost = algorithm.cost(call.rankCount),
         .sentBytes = bytes * schedule::sentFactor(algorithm, call.rankCount),
         .receivedBytes = bytes * schedule::receivedFactor(algorithm, call.rankCount),
         .isChosen = algorithm.name == explanation.plan.algorithm});
  }
}

void addProof(Explanation& explanation) {
  const ExplainedCall& call = explanation.call;
  if (call.rankCount > kMostRanksProved) return;
  const schedule::Schedule schedule = schedule::makeSchedule(
      *schedule::findAlgorithm(call.collective, explanation.plan.algorithm),
      {.rankCount = call.rankCount, .root = call.root, .sender = senderOf(call)});
  explanation.isProved = true;
  for (const bool inPlace : {true, false}) {
    const schedule::Proof proof =
        schedule::prove(schedule, {.slotCount = static_cast<int32_t>(explanation.slotCount),
                                   .pieces = 1,
                                   .inPlace = inPlace});
    explanation.report = proof.report;
    if (!proof.ok()) {
      explanation.refusal = (inPlace ? "in place: " : "") + proof.refusal;
      return;
    }
  }
}

std::string listRanks(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank rank : ranks) text += fmt::format(" {}", index(rank));
  return text.empty() ? " nobody" : text;
}

std::string proofText(const Explanation& explanation) {
  if (!explanation.isProved) {
    return fmt::format("not tried: more than {} ranks", kMostRanksProved);
  }
  if (!explanation.refusal.empty()) return "refused: " + explanation.refusal;
  return fmt::format(
      "right on all ranks, in place and not, no deadlock with {} slots a link ({} steps, {} "
      "messages, {} hops a piece)",
      explanation.slotCount, explanation.report.steps, explanation.report.messages,
      explanation.report.hops);
}

size_t pieceBytes(const plan::Plan& plan) {
  return plan.layout.pieceElements * sizeOf(DataType::kFloat32);
}

std::string piecesText(const Explanation& explanation) {
  const plan::Plan& plan = explanation.plan;
  const schedule::Layout& layout = plan.layout;
  std::string text =
      fmt::format("{} of up to {} bytes a chunk", layout.pieceCount, pieceBytes(plan));
  if (plan.isDirect) {
    text += fmt::format(", read from the sender's buffer where ranks can; else {} of up to {}",
                        explanation.slotPlan.layout.pieceCount, pieceBytes(explanation.slotPlan));
  }
  return text;
}

void printAlgorithms(const Explanation& explanation) {
  const Terminal terminal;
  fmt::print("\n  {:<9}  {:>6}  {:>6}  {:>8}  {:>12}  {:>14}  {:>5}  {:>5}\n", "ALGORITHM", "STEPS",
             "SENDS", "RECEIVES", "SENT BYTES", "RECEIVED BYTES", "HOPS", "SLOTS");
  for (const AlgorithmFacts& facts : explanation.algorithms) {
    const schedule::Cost& cost = facts.cost;
    const std::string line =
        fmt::format("{} {:<9}  {:>6}  {:>6}  {:>8}  {:>12.0f}  {:>14.0f}  {:>5}  {:>5}",
                    facts.isChosen ? '*' : ' ', facts.algorithm->name, cost.steps,
                    cost.sentMessages, cost.receivedMessages, facts.sentBytes, facts.receivedBytes,
                    cost.hops, facts.algorithm->minSlotCount);
    fmt::print("{}\n", facts.isChosen ? terminal.paint(Colour::kBold, line) : line);
  }
}

// The shown rank's program; the plan's is that of a send's sender.
schedule::Program programOf(const Explanation& explanation) {
  const ExplainedCall& call = explanation.call;
  return schedule::findAlgorithm(call.collective, explanation.plan.algorithm)
      ->build({.rankCount = call.rankCount, .root = call.root, .sender = senderOf(call)},
              call.rank);
}

std::string limitText(size_t bytes) {
  if (bytes == plan::kAnyBytes) return "any";
  if (bytes % 1_MiB == 0) return fmt::format("{}M", bytes / 1_MiB);
  return bytes % 1_KiB == 0 ? fmt::format("{}K", bytes / 1_KiB) : fmt::format("{}", bytes);
}

// One collective with one number of ranks: the rows of the table, or its only algorithm.
struct TableEntry {
  Collective collective;
  int32_t rankCount;
  std::vector<plan::ChoiceRow> rows;
};

std::vector<TableEntry> entriesFor(const std::vector<int32_t>& rankCounts) {
  std::vector<TableEntry> entries;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (const int32_t rankCount : rankCounts) {
      const auto rows = plan::choiceRows(collective, rankCount);
      TableEntry entry{collective, rankCount, {rows.begin(), rows.end()}};
      if (entry.rows.empty()) {
        entry.rows.push_back({collective, plan::kAnyRanks, plan::kAnyBytes,
                              schedule::algorithms(collective)[0].name});
      }
      entries.push_back(std::move(entry));
    }
  }
  return entries;
}

ordered_json jsonOf(const TableEntry& entry) {
  ordered_json rows = ordered_json::array();
  for (const plan::ChoiceRow& row : entry.rows) {
    const bool isAny = row.maxBytes == plan::kAnyBytes;
    rows.push_back({{"max_bytes", isAny ? ordered_json() : ordered_json(row.maxBytes)},
                    {"algorithm", row.algorithm}});
  }
  return {{"collective", name(entry.collective)}, {"ranks", entry.rankCount}, {"rows", rows}};
}

}  // namespace

Result<Explanation> explainCall(const ExplainedCall& call) {
  const auto blocks = static_cast<uint64_t>(schedule::blockCount(call.collective, call.rankCount));
  Explanation explanation;
  explanation.call = call;
  explanation.count = divideUp(call.bytes, blocks * sizeOf(DataType::kFloat32));
  const plan::CallShape shape = shapeOf(call, explanation.count);
  explanation.call.bytes = plan::vectorBytes(shape, call.rankCount);
  TUTTI_TRY_ASSIGN(explanation.plan, plan::Planner(agreementOf(call, true)).make(shape));
  TUTTI_TRY_ASSIGN(explanation.slotPlan, plan::Planner(agreementOf(call, false)).make(shape));
  explanation.slotCount = plan::linkGeometry(call.bufferBytes).slotCount;
  addAlgorithms(explanation);
  addProof(explanation);
  return explanation;
}

void printText(const Explanation& explanation) {
  const ExplainedCall& call = explanation.call;
  fmt::print("{} of {} bytes ({} blocks of {} floats) on {} ranks\n", name(call.collective),
             call.bytes, schedule::blockCount(call.collective, call.rankCount), explanation.count,
             call.rankCount);
  fmt::print("  takes   {}: {}\n", explanation.plan.algorithm, explanation.plan.reason);
  fmt::print("  pieces  {}\n", piecesText(explanation));
  fmt::print("  proof   {}\n", proofText(explanation));
  printAlgorithms(explanation);
  const schedule::Program program = programOf(explanation);
  fmt::print("\n  Rank {}'s program, run once a piece; receives from{}, sends to{}\n",
             index(call.rank), listRanks(program.receivesFrom), listRanks(program.sendsTo));
  for (size_t i = 0; i < program.steps.size(); ++i) {
    fmt::print("  {:>4}  {}\n", i, schedule::describe(program, program.steps[i]));
  }
}

void printJson(const Explanation& explanation) {
  const ExplainedCall& call = explanation.call;
  ordered_json output{{"collective", name(call.collective)},
                      {"ranks", call.rankCount},
                      {"root", index(call.root)},
                      {"bytes", call.bytes},
                      {"algorithm", explanation.plan.algorithm},
                      {"reason", explanation.plan.reason},
                      {"pieces", explanation.plan.layout.pieceCount},
                      {"piece_bytes", pieceBytes(explanation.plan)},
                      {"reads_senders", explanation.plan.isDirect}};
  output["algorithms"] = ordered_json::array();
  for (const AlgorithmFacts& facts : explanation.algorithms) {
    output["algorithms"].push_back({{"name", facts.algorithm->name},
                                    {"steps", facts.cost.steps},
                                    {"sent_messages", facts.cost.sentMessages},
                                    {"received_messages", facts.cost.receivedMessages},
                                    {"sent_bytes", facts.sentBytes},
                                    {"received_bytes", facts.receivedBytes},
                                    {"hops", facts.cost.hops},
                                    {"slots", facts.algorithm->minSlotCount}});
  }
  const schedule::Program program = programOf(explanation);
  ordered_json steps = ordered_json::array();
  for (const schedule::Step& step : program.steps) {
    steps.push_back(schedule::describe(program, step));
  }
  output["program"] = {{"rank", index(call.rank)}, {"steps", steps}};
  output["proof"] = {{"tried", explanation.isProved},
                     {"ok", explanation.isProved && explanation.refusal.empty()},
                     {"text", proofText(explanation)}};
  fmt::print("{}\n", output.dump(2));
}

void printTable(const std::vector<int32_t>& rankCounts, bool json) {
  const std::vector<TableEntry> entries = entriesFor(rankCounts);
  if (json) {
    ordered_json output{{"table", ordered_json::array()}};
    for (const TableEntry& entry : entries) output["table"].push_back(jsonOf(entry));
    fmt::print("{}\n", output.dump(2));
    return;
  }
  fmt::print("{:<13}  {:>5}  {}\n", "COLLECTIVE", "RANKS", "ALGORITHM, UP TO BYTES");
  for (const TableEntry& entry : entries) {
    std::string line = fmt::format("{:<13}  {:>5} ", name(entry.collective), entry.rankCount);
    for (const plan::ChoiceRow& row : entry.rows) {
      line += fmt::format(" {:<15}", fmt::format("{} {}", row.algorithm, limitText(row.maxBytes)));
    }
    fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
}

}  // namespace tutti::tools
