#include "tools/explain_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "plan/choice.h"
#include "plan/cost_model.h"
#include "plan/send_relay.h"
#include "plan/tuning.h"
#include "tools/byte_size.h"
#include "tools/terminal.h"

namespace tutti::tools {
namespace {

using nlohmann::ordered_json;

// Of a send or receive the rank after the receiver.
Rank senderOf(const ExplainedCall& call) {
  return isPointToPoint(call.collective) ? Rank{(index(call.root) + 1) % call.rankCount} : Rank{0};
}

plan::CallShape shapeOf(const ExplainedCall& call, uint64_t count) {
  const bool isReceive = call.collective == Collective::kRecv;
  return {.collective = call.collective,
          .peer = isReceive ? senderOf(call) : call.root,
          .count = count};
}

double ranksPerCpu(int32_t rankCount, int32_t cpuCount) {
  return std::max(1.0, static_cast<double>(rankCount) / cpuCount);
}

// The rank the planner plans for: that of a send or receive is given by the call.
plan::Agreement agreementOf(const ExplainedCall& call, bool readsPeers) {
  plan::Agreement agreement{.rank = call.rank,
                            .rankCount = call.rankCount,
                            .geometry = plan::linkGeometry(call.bufferBytes),
                            .algorithms = call.algorithms,
                            .readsPeers = readsPeers,
                            .readsByKernel = !readsPeers && call.readsByKernel,
                            .readsFastByKernel = !readsPeers && call.readsFastByKernel,
                            .isOneHost = true,
                            .ranksPerCpu = ranksPerCpu(call.rankCount, call.cpuCount),
                            .processor = call.processor};
  if (call.hostCount > 1) {
    agreement.geometry = plan::acrossHosts(agreement.geometry);
    agreement.readsPeers = agreement.isOneHost = false;
    agreement.readsByKernel = agreement.readsFastByKernel = false;
    for (int32_t rank = 0; rank < call.rankCount; ++rank)
      agreement.hostOf.push_back(rank * call.hostCount / call.rankCount);
    const int32_t mostOfAHost = (call.rankCount + call.hostCount - 1) / call.hostCount;
    agreement.ranksPerCpu = ranksPerCpu(mostOfAHost, call.cpuCount);
    agreement.overlapsNetwork = plan::doOverlap(call.overlap, call.cpuCount >= 2 * mostOfAHost);
  }
  agreement.inNetwork = call.inNetwork;
  agreement.relays = call.relays;
  agreement.tuning = call.tuning;
  if (call.collective == Collective::kSend) agreement.rank = senderOf(call);
  if (call.collective == Collective::kRecv) agreement.rank = call.root;
  return agreement;
}

schedule::Schedule scheduleOf(const ExplainedCall& call, std::string_view algorithm) {
  const plan::Agreement agreement = agreementOf(call, false);
  return schedule::makeSchedule(*schedule::findAlgorithm(call.collective, algorithm),
                                plan::optionsFor(shapeOf(call, 0), agreement));
}

plan::CostedCall costedOf(const ExplainedCall& call) {
  plan::CostedCall costed{
      .rankCount = call.rankCount, .bytes = call.bytes, .hostCount = call.hostCount};
  if (call.inNetwork.headCount > 0) {
    costed.inNetwork = {.rankCount = call.rankCount,
                        .hostCount = call.hostCount,
                        .mostRanks = (call.rankCount + call.hostCount - 1) / call.hostCount,
                        .headCount = call.inNetwork.headCount};
  }
  return costed;
}

double costOf(std::string_view algorithm, const std::vector<plan::AlgorithmCost>& costs) {
  const auto found = std::ranges::find(costs, algorithm, &plan::AlgorithmCost::algorithm);
  return found == costs.end() ? 0 : found->us;
}

// Of all that there are, whatever NCCL_ALGO allows.
void addAlgorithms(Explanation& explanation) {
  ExplainedCall call = explanation.call;
  call.algorithms.clear();
  const plan::CallShape shape = shapeOf(call, explanation.count);
  const std::vector<plan::AlgorithmCost> threads = plan::costsOf(shape, agreementOf(call, true));
  const std::vector<plan::AlgorithmCost> processes = plan::costsOf(shape, agreementOf(call, false));
  for (const schedule::Algorithm& algorithm : schedule::algorithms(call.collective)) {
    const bool isThere = std::ranges::find(processes, algorithm.name,
                                           &plan::AlgorithmCost::algorithm) != processes.end();
    if (algorithm.reducesInNetwork() && !isThere) continue;
    const auto [cost, chunks, chunkBytes] = plan::countedOf(algorithm, costedOf(call));
    explanation.algorithms.push_back(
        {.algorithm = &algorithm,
         .cost = cost,
         .sentBytes = chunkBytes * cost.sentMessages,
         .receivedBytes = chunkBytes * cost.receivedMessages,
         .threadsUs = call.hostCount > 1 ? 0 : costOf(algorithm.name, threads),
         .processesUs = costOf(algorithm.name, processes),
         .isChosen = algorithm.name == explanation.plan.algorithm});
  }
}

void addProof(Explanation& explanation) {
  const ExplainedCall& call = explanation.call;
  if (call.rankCount > kMostRanksProved) return;
  const schedule::Schedule schedule = scheduleOf(call, explanation.plan.algorithm);
  explanation.isProved = true;
  for (const bool inPlace : {true, false}) {
    const schedule::Proof proof = schedule::prove(
        schedule, {.slotCount = static_cast<int32_t>(wire::capacity(explanation.slotCount)),
                   .pieces = 1,
                   .inPlace = inPlace});
    explanation.report = proof.report;
    if (!proof.ok()) {
      explanation.refusal = (inPlace ? "in place: " : "") + proof.refusal;
      return;
    }
  }
}

void addMapped(Explanation& explanation, const plan::CallShape& shape) {
  const ExplainedCall& call = explanation.call;
  if (call.rankCount > plan::kMostRanksMapped) return;
  const plan::Agreement agreement = agreementOf(call, false);
  const schedule::Schedule schedule = scheduleOf(call, explanation.slotPlan.algorithm);
  explanation.mapped = explainMapped(agreement, shape, explanation.slotPlan, schedule);
  const auto other = plan::Planner(agreement).makeOther(shape, explanation.slotPlan);
  if (other.ok() && other.value()) explanation.mappedOther = other.value()->algorithm;
}

void printMapped(const Explanation& explanation) {
  if (explanation.mapped.steps.empty()) return;
  const std::string_view other = explanation.mappedOther;
  fmt::print("\n  Between processes, with buffers of ncclMemAlloc, {}{}:\n",
             explanation.slotPlan.algorithm,
             other.empty() ? "" : fmt::format(" (or {}, where that is found faster)", other));
  for (const std::string& line : textOf(explanation.mapped)) fmt::print("  {}\n", line);
}

ordered_json mappedJson(const Explanation& explanation) {
  ordered_json steps = ordered_json::array();
  for (const MappedStepFacts& step : explanation.mapped.steps) {
    ordered_json places = ordered_json::array();
    for (const Rank peer : step.placesAt) places.push_back(index(peer));
    steps.push_back({{"step", step.step},
                     {"names_memory", step.namesMemory},
                     {"offers_for_step", step.offersFor},
                     {"places_at_ranks", places},
                     {"is_placed", step.isPlaced}});
  }
  return {{"algorithm", explanation.slotPlan.algorithm},
          {"other", explanation.mappedOther},
          {"steps", steps}};
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

// 0: there is no price.
std::string usText(double us) { return us == 0 ? "-" : fmt::format("{:.2f}", us); }

void printAlgorithms(const Explanation& explanation) {
  const Terminal terminal;
  fmt::print("\n  {:<12}  {:>10}  {:>12}  {:>6}  {:>6}  {:>8}  {:>12}  {:>14}  {:>5}  {:>5}\n",
             "ALGORITHM", "THREADS us", "PROCESSES us", "STEPS", "SENDS", "RECEIVES", "SENT BYTES",
             "RECEIVED BYTES", "HOPS", "SLOTS");
  for (const AlgorithmFacts& facts : explanation.algorithms) {
    const schedule::Cost& cost = facts.cost;
    const std::string line = fmt::format(
        "{} {:<12}  {:>10}  {:>12}  {:>6}  {:>6}  {:>8}  {:>12.0f}  {:>14.0f}  {:>5}  {:>5}",
        facts.isChosen ? '*' : ' ', facts.algorithm->name, usText(facts.threadsUs),
        usText(facts.processesUs), cost.steps, cost.sentMessages, cost.receivedMessages,
        facts.sentBytes, facts.receivedBytes, cost.hops, facts.algorithm->minSlotCount);
    fmt::print("{}\n", facts.isChosen ? terminal.paint(Colour::kBold, line) : line);
  }
}

// The shown rank's program; the plan's is that of a send's sender.
schedule::Program programOf(const Explanation& explanation) {
  const ExplainedCall& call = explanation.call;
  const plan::Agreement agreement = agreementOf(call, false);
  return schedule::buildProgram(
      *schedule::findAlgorithm(call.collective, explanation.plan.algorithm),
      plan::optionsFor(shapeOf(call, explanation.count), agreement), call.rank);
}

// "oneshot, ring from 32K, twoshot from 256K"
std::string textOf(const std::vector<plan::Switch>& switches) {
  std::string text;
  for (const plan::Switch& each : switches) {
    text += text.empty() ? std::string(each.algorithm)
                         : fmt::format(", {} from {}", each.algorithm, shortText(each.bytes));
  }
  return text;
}

// One collective with one number of ranks of one kind.
struct TableEntry {
  Collective collective;
  int32_t rankCount;
  bool readsPeers;
  std::vector<plan::Switch> switches;
};

std::vector<TableEntry> entriesFor(const ExplainedTable& table) {
  std::vector<TableEntry> entries;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (const int32_t rankCount : table.rankCounts) {
      for (const bool readsPeers : {true, false}) {
        const plan::Agreement agreement{.rankCount = rankCount,
                                        .geometry = plan::linkGeometry(512_KiB),
                                        .algorithms = {},
                                        .readsPeers = readsPeers,
                                        .readsByKernel = !readsPeers && table.readsByKernel,
                                        .readsFastByKernel = !readsPeers && table.readsFastByKernel,
                                        .isOneHost = true,
                                        .ranksPerCpu = ranksPerCpu(rankCount, table.cpuCount),
                                        .processor = table.processor,
                                        .tuning = table.tuning};
        entries.push_back(
            {collective, rankCount, readsPeers, plan::switchesOf(collective, agreement)});
      }
    }
  }
  return entries;
}

// Over whose process a send to another host goes; its sender's own where nobody relays.
Rank carrierOf(const ExplainedCall& call) {
  return plan::carrierOf(agreementOf(call, false), senderOf(call), call.root);
}

std::string wayText(const ExplainedCall& call) {
  const int32_t sender = index(senderOf(call));
  const int32_t carrier = index(carrierOf(call));
  const plan::Agreement agreement = agreementOf(call, false);
  const auto hostOf = [&](int32_t rank) { return agreement.hostOf[static_cast<size_t>(rank)]; };
  if (hostOf(sender) == hostOf(index(call.root)))
    return fmt::format("rank {} -> rank {}, inside host {}", sender, index(call.root),
                       hostOf(sender));
  const std::string ends = fmt::format("rank {} on host {} -> rank {} on host {}", sender,
                                       hostOf(sender), index(call.root), hostOf(index(call.root)));
  if (carrier != sender) return fmt::format("{}, by way of rank {}'s process", ends, carrier);
  return ends + ", directly";
}

std::string_view kindOf(bool readsPeers) { return readsPeers ? "threads" : "processes"; }

ordered_json jsonOf(const std::vector<plan::Switch>& switches) {
  ordered_json rows = ordered_json::array();
  for (const plan::Switch& each : switches)
    rows.push_back({{"from_bytes", rows.empty() ? 0 : each.bytes}, {"algorithm", each.algorithm}});
  return rows;
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
  explanation.switches = plan::switchesOf(call.collective, agreementOf(call, true));
  explanation.slotSwitches = plan::switchesOf(call.collective, agreementOf(call, false));
  explanation.slotCount = plan::linkGeometry(call.bufferBytes).slotCount;
  addAlgorithms(explanation);
  addProof(explanation);
  addMapped(explanation, shape);
  return explanation;
}

void printText(const Explanation& explanation) {
  const ExplainedCall& call = explanation.call;
  const bool isOneHost = call.hostCount == 1;
  fmt::print("{} of {} bytes ({} blocks of {} floats) on {} ranks{}\n", name(call.collective),
             call.bytes, schedule::blockCount(call.collective, call.rankCount), explanation.count,
             call.rankCount, isOneHost ? "" : fmt::format(" of {} hosts", call.hostCount));
  if (!isOneHost) fmt::print("  network {}\n", call.network);
  if (!isOneHost && isPointToPoint(call.collective)) fmt::print("  way     {}\n", wayText(call));
  if (!call.inNetwork.obstacle.empty())
    fmt::print("  none reduces there: {}\n", call.inNetwork.obstacle);
  if (call.inNetwork.headCount > 0)
    fmt::print("  reduces{}{} there: {}, {} heads a host; ranks {} on stand for it\n",
               call.inNetwork.gathers ? ", gathers" : "",
               call.inNetwork.scatters ? ", scatters" : "", call.inNetwork.name,
               call.inNetwork.headCount, call.rankCount);
  if (call.tuning != nullptr && call.tuning->cpu)
    fmt::print("  prices  of {}, by TUTTI_TUNING_FILE\n", call.tuning->cpu->origin.machine);
  fmt::print("  takes   {}: {}\n", explanation.plan.algorithm, explanation.plan.reason);
  if (explanation.slotPlan.algorithm != explanation.plan.algorithm)
    fmt::print("          {} between processes: {}\n", explanation.slotPlan.algorithm,
               explanation.slotPlan.reason);
  if (isOneHost) fmt::print("  threads   {}\n", textOf(explanation.switches));
  fmt::print("  processes {}\n", textOf(explanation.slotSwitches));
  fmt::print("  pieces  {}\n", piecesText(explanation));
  fmt::print("  proof   {}\n", proofText(explanation));
  printAlgorithms(explanation);
  const schedule::Program program = programOf(explanation);
  fmt::print("\n  Rank {}'s program, run once a piece; receives from{}, sends to{}\n",
             index(call.rank), listRanks(program.receivesFrom), listRanks(program.sendsTo));
  for (size_t i = 0; i < program.steps.size(); ++i) {
    fmt::print("  {:>4}  {}\n", i, schedule::describe(program, program.steps[i]));
  }
  printMapped(explanation);
}

void printJson(const Explanation& explanation) {
  const ExplainedCall& call = explanation.call;
  ordered_json output{{"collective", name(call.collective)},
                      {"ranks", call.rankCount},
                      {"root", index(call.root)},
                      {"bytes", call.bytes},
                      {"hosts", call.hostCount},
                      {"network", call.network},
                      {"algorithm", explanation.plan.algorithm},
                      {"reason", explanation.plan.reason},
                      {"pieces", explanation.plan.layout.pieceCount},
                      {"piece_bytes", pieceBytes(explanation.plan)},
                      {"reads_senders", explanation.plan.isDirect},
                      {"threads", jsonOf(explanation.switches)},
                      {"processes", jsonOf(explanation.slotSwitches)}};
  if (isPointToPoint(call.collective)) {
    output["sender"] = index(senderOf(call));
    output["carrier"] = index(carrierOf(call));
  }
  output["algorithms"] = ordered_json::array();
  for (const AlgorithmFacts& facts : explanation.algorithms) {
    output["algorithms"].push_back({{"name", facts.algorithm->name},
                                    {"threads_us", facts.threadsUs},
                                    {"processes_us", facts.processesUs},
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
  output["mapped"] = mappedJson(explanation);
  output["proof"] = {{"tried", explanation.isProved},
                     {"ok", explanation.isProved && explanation.refusal.empty()},
                     {"text", proofText(explanation)}};
  fmt::print("{}\n", output.dump(2));
}

void printTable(const ExplainedTable& table) {
  const std::vector<TableEntry> entries = entriesFor(table);
  if (table.json) {
    ordered_json output{{"cpus", table.cpuCount}, {"table", ordered_json::array()}};
    for (const TableEntry& entry : entries)
      output["table"].push_back({{"collective", name(entry.collective)},
                                 {"ranks", entry.rankCount},
                                 {"kind", kindOf(entry.readsPeers)},
                                 {"rows", jsonOf(entry.switches)}});
    fmt::print("{}\n", output.dump(2));
    return;
  }
  fmt::print("On {} CPUs\n{:<13}  {:>5}  {:<9}  {}\n", table.cpuCount, "COLLECTIVE", "RANKS", "AS",
             "ALGORITHM, FROM BYTES OF THE WHOLE VECTOR");
  for (const TableEntry& entry : entries)
    fmt::print("{:<13}  {:>5}  {:<9}  {}\n", name(entry.collective), entry.rankCount,
               kindOf(entry.readsPeers), textOf(entry.switches));
}

}  // namespace tutti::tools
