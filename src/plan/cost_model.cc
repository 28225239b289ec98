#include "plan/cost_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <tuple>

#include "base/units.h"
#include "plan/pieces.h"
#include "schedule/references.h"
#include "wire/link.h"

namespace tutti::plan {
namespace {

constexpr double kMb = 1e6;
constexpr std::array kTerms = {CostTerm::kCall,    CostTerm::kHop,    CostTerm::kLine,
                               CostTerm::kMessage, CostTerm::kSlotMb, CostTerm::kReferencedMb};
// What is left of the copies' time where the kernel's reading wins: 0.5 to 0.88, all-gather,
// all-to-all and reduce-scatter of 64 KB to 16 MB by 2 ranks on 2 CPUs of an Intel Xeon VM,
// 2026-11-21. Where ranks share CPUs, 0.5 to 1.8: there it counts for nothing.
constexpr double kKernelReadShare = 0.75;
constexpr std::string_view kFirstLine = "tutti tuning 3";
constexpr size_t kMaxFileBytes = 1 << 20;
constexpr int32_t kMaxCpus = 1 << 20;

size_t place(CostTerm term) { return static_cast<size_t>(term); }

// How often the busiest CPU does something: as often as the busiest rank, or, where a CPU holds
// several, as often as its ranks do together. With the busiest rank's work for every rank of the
// CPU, a root that serves all others looked as dear as all-to-all, and 88 % of the choices were
// good instead of 94 (docs/results/2026-11-21-choice.md).
class Work {
 public:
  explicit Work(const CostedCall& call) : cpus_(call.rankCount / call.ranksPerCpu) {}
  double of(double busiestRank, double allRanks) const {
    return std::max(busiestRank, allRanks / cpus_);
  }

 private:
  double cpus_;
};

}  // namespace

std::string_view nameOf(CostTerm term) {
  switch (term) {
    case CostTerm::kCall: return "call";
    case CostTerm::kHop: return "hop";
    case CostTerm::kLine: return "line";
    case CostTerm::kMessage: return "message";
    case CostTerm::kSlotMb: return "slot_mb";
    case CostTerm::kReferencedMb: return "referenced_mb";
  }
  return "?";
}

namespace {

// Chunks that are copied, one after the other, until a call by references is over. Who sends one
// copies nothing: the readers do, all at once. Whoever passes data on waits for its first piece,
// and the call waits for the last reader; copies in slots, which the next call's follow at once,
// show none of that.
double referencedChunks(const schedule::Cost& cost, const Work& work, size_t chunkBytes) {
  const auto pieces =
      static_cast<double>(std::max<size_t>(divideUp(chunkBytes, directPieceBytes(chunkBytes)), 1));
  const double chunks = work.of(cost.receivedMessages, static_cast<double>(cost.messages));
  return (chunks * (pieces - 1) + std::max<double>(chunks, cost.hops)) / pieces;
}

}  // namespace

CostTerms countTerms(const schedule::Algorithm& algorithm, const CostedCall& call) {
  const schedule::Cost cost = algorithm.cost(call.rankCount);
  const int32_t chunks = std::max(algorithm.chunkCount(call.rankCount), 1);
  const uint64_t chunkBytes = call.bytes / static_cast<uint64_t>(chunks);
  const bool isLine = chunkBytes <= wire::kInlineBytes;
  const bool isReferable = chunkBytes >= kDirectMinBytes && schedule::isReferable(algorithm);
  const bool isReferenced = call.readsPeers && isReferable;
  const size_t pieceBytes = pieceBytesFor(chunkBytes, {.slotBytes = call.slotBytes,
                                                       .isCrowded = call.ranksPerCpu > 1,
                                                       .isOneHost = call.isOneHost});
  const double pieces =
      isReferenced ? 1 : static_cast<double>(std::max<size_t>(divideUp(chunkBytes, pieceBytes), 1));
  const Work work(call);
  const double most = std::max(cost.sentMessages, cost.receivedMessages);
  const auto all = static_cast<double>(cost.messages);
  const double copies =
      isReferenced ? referencedChunks(cost, work, chunkBytes) : work.of(most, all);
  // The kernel's reading is tried, and taken where it is faster (launch/form_trial.h).
  const bool mayGain = call.readsByKernel && isReferable && call.ranksPerCpu <= 1;
  CostTerms counts{};
  counts[place(CostTerm::kCall)] = 1;
  counts[place(CostTerm::kHop)] = cost.hops * call.ranksPerCpu;
  counts[place(isLine ? CostTerm::kLine : CostTerm::kMessage)] = work.of(most, 2 * all) * pieces;
  counts[place(isReferenced ? CostTerm::kReferencedMb : CostTerm::kSlotMb)] =
      copies * static_cast<double>(call.bytes) / chunks * (mayGain ? kKernelReadShare : 1) / kMb;
  return counts;
}

const CostPrices* Tuning::pricesOf(const schedule::Algorithm& algorithm, bool readsPeers) const {
  const auto found = std::ranges::find_if(prices, [&](const CostPrices& each) {
    return each.collective == algorithm.collective && each.readsPeers == readsPeers &&
           each.algorithm == algorithm.name;
  });
  return found == prices.end() ? nullptr : &*found;
}

double predictUs(const CostPrices& prices, const CostTerms& counts) {
  double us = 0;
  for (size_t i = 0; i < kCostTermCount; ++i) us += prices.us[i] * counts[i];
  return us;
}

std::string writeTuning(const Tuning& tuning) {
  std::string text = fmt::format("{}\nmachine {}\ndate {}\nhow {}\ncpus {}\n", kFirstLine,
                                 tuning.machine, tuning.date, tuning.how, tuning.cpuCount);
  text += "# us of each: collective, kind of ranks, algorithm, then price by price\n";
  for (const CostPrices& each : tuning.prices) {
    text += fmt::format("prices {} {} {}", name(each.collective),
                        each.readsPeers ? "threads" : "processes", each.algorithm);
    for (const CostTerm term : kTerms)
      text += fmt::format(" {} {:.4g}", nameOf(term), each.us[place(term)]);
    text += '\n';
  }
  return text;
}

namespace {

// Words of a line, one after the other.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}
  std::string_view next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    const std::string_view word = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(word.size());
    return word;
  }
  std::string_view rest() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    return rest_;
  }

 private:
  std::string_view rest_;
};

template <typename T>
bool parseNumber(std::string_view text, T& value) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

class TuningParser {
 public:
  TuningParser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Result<Tuning> parse() {
    if (text_.size() > kMaxFileBytes)
      return invalidArgument("{}: {} bytes; a tuning file has at most {}", source_, text_.size(),
                             kMaxFileBytes);
    while (!text_.empty()) {
      const std::string_view line = text_.substr(0, text_.find('\n'));
      text_.remove_prefix(std::min(line.size() + 1, text_.size()));
      ++line_;
      if (line_ == 1 && line != kFirstLine)
        return fault(fmt::format("wanted \"{}\" (tutti tune writes such files)", kFirstLine));
      if (line_ > 1 && !line.empty() && !line.starts_with('#')) TUTTI_TRY(parseLine(line));
    }
    if (tuning_.prices.empty()) return fault("there are no prices in it");
    return std::move(tuning_);
  }

 private:
  Status fault(std::string_view what) const {
    return invalidArgument("{}:{}: {}", source_, line_, what);
  }

  Status parseLine(std::string_view line) {
    Words words(line);
    const std::string_view key = words.next();
    if (key == "machine") {
      tuning_.machine = words.rest();
    } else if (key == "date") {
      tuning_.date = words.rest();
    } else if (key == "how") {
      tuning_.how = words.rest();
    } else if (key == "cpus") {
      if (!parseNumber(words.next(), tuning_.cpuCount) || tuning_.cpuCount < 1 ||
          tuning_.cpuCount > kMaxCpus)
        return fault(fmt::format("cpus: wanted 1 to {}", kMaxCpus));
    } else if (key == "prices") {
      return parsePrices(words);
    } else {
      return fault(
          fmt::format("\"{}\": wanted machine, date, how, cpus or prices", key.substr(0, 32)));
    }
    return {};
  }

  Status parsePrices(Words& words) {
    CostPrices prices;
    const std::string_view collective = words.next();
    bool isKnown = false;
    for (int i = 0; i < kCollectiveCount; ++i) {
      if (name(static_cast<Collective>(i)) != collective) continue;
      prices.collective = static_cast<Collective>(i);
      isKnown = true;
    }
    if (!isKnown) return fault(fmt::format("\"{}\" is no collective", collective.substr(0, 32)));
    const std::string_view kind = words.next();
    if (kind != "threads" && kind != "processes")
      return fault(fmt::format("\"{}\": wanted threads or processes", kind.substr(0, 32)));
    prices.readsPeers = kind == "threads";
    const std::string_view algorithmName = words.next();
    const schedule::Algorithm* algorithm =
        schedule::findAlgorithm(prices.collective, algorithmName);
    if (algorithm == nullptr)
      return fault(
          fmt::format("{} has no algorithm \"{}\"", collective, algorithmName.substr(0, 32)));
    prices.algorithm = algorithm->name;
    if (tuning_.pricesOf(*algorithm, prices.readsPeers) != nullptr)
      return fault(
          fmt::format("{} of {} by {} has prices already", collective, kind, algorithm->name));
    for (const CostTerm term : kTerms) {
      const std::string_view label = words.next();
      double& us = prices.us[place(term)];
      if (label != nameOf(term) || !parseNumber(words.next(), us) || !(us >= 0) || us > 1e12)
        return fault(fmt::format("wanted {} and its price in us", nameOf(term)));
    }
    tuning_.prices.push_back(prices);
    return {};
  }

  std::string_view text_;
  const std::string& source_;
  int line_ = 0;
  Tuning tuning_;
};

}  // namespace

Result<Tuning> parseTuning(std::string_view text, const std::string& source) {
  return TuningParser(text, source).parse();
}

namespace {

// Of a sample's counts, in parts of what was measured: errors are relative.
struct Row {
  CostTerms parts{};
};

// How much a price's distance from the usual one weighs beside a sample's error. Chosen by fitting
// to one measurement of all collectives and choosing in another (2 CPUs of an Intel Xeon VM,
// 2026-11-21): up to .03 it costs nothing, with 1 the share of good choices falls from 91 to 78 %.
constexpr double kPull = .02;

double pullOf(const CostTerms* usual, size_t term) {
  if (usual == nullptr || (*usual)[term] <= 0) return 0;
  return kPull / ((*usual)[term] * (*usual)[term]);
}

}  // namespace

CostTerms fitPrices(std::span<const CostSample> samples, const CostTerms* usual) {
  // Coordinate by coordinate, each to its best value not below 0: converges, as the sum of squares
  // is convex.
  constexpr int kRounds = 2000;
  std::vector<Row> rows;
  for (const CostSample& each : samples) {
    if (each.us <= 0) continue;
    Row& row = rows.emplace_back();
    for (size_t term = 0; term < kCostTermCount; ++term)
      row.parts[term] = each.counts[term] / each.us;
  }
  CostTerms prices{};
  std::vector<double> error(rows.size(), 1);  // what is still unexplained of each, 1: all
  for (int round = 0; round < kRounds; ++round) {
    double moved = 0;
    for (size_t term = 0; term < kCostTermCount; ++term) {
      const double pull = pullOf(usual, term);
      double along = pull == 0 ? 0 : pull * ((*usual)[term] - prices[term]);
      double square = pull;
      for (size_t i = 0; i < rows.size(); ++i) {
        along += rows[i].parts[term] * error[i];
        square += rows[i].parts[term] * rows[i].parts[term];
      }
      if (square == 0) continue;
      const double change = std::max(along / square, -prices[term]);
      prices[term] += change;
      for (size_t i = 0; i < rows.size(); ++i) error[i] -= change * rows[i].parts[term];
      moved = std::max(moved, std::abs(change) / (prices[term] + 1e-12));
    }
    if (moved < 1e-9) break;
  }
  return prices;
}

std::vector<CostPrices> fitAll(std::span<const MeasuredCall> calls) {
  std::array<std::vector<CostSample>, 2> byKind;
  std::map<std::tuple<Collective, bool, std::string_view>, std::vector<CostSample>> byAlgorithm;
  for (const MeasuredCall& each : calls) {
    byKind[each.readsPeers ? 1 : 0].push_back(each.sample);
    byAlgorithm[{each.collective, each.readsPeers, each.algorithm}].push_back(each.sample);
  }
  const std::array<CostTerms, 2> usual = {fitPrices(byKind[0]), fitPrices(byKind[1])};
  std::vector<CostPrices> prices;
  for (const auto& [key, samples] : byAlgorithm) {
    const auto& [collective, readsPeers, algorithm] = key;
    prices.push_back({.collective = collective,
                      .readsPeers = readsPeers,
                      .algorithm = algorithm,
                      .us = fitPrices(samples, &usual[readsPeers ? 1 : 0])});
  }
  return prices;
}

}  // namespace tutti::plan
