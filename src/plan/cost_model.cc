#include "plan/cost_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "plan/plan.h"
#include "schedule/references.h"

namespace tutti::plan {
namespace {

constexpr double kMb = 1e6;
constexpr std::array kTerms = {CostTerm::kCall, CostTerm::kHop, CostTerm::kMessage,
                               CostTerm::kSlotMb, CostTerm::kReferencedMb};
constexpr std::string_view kFirstLine = "tutti tuning 1";
constexpr size_t kMaxFileBytes = 1 << 20;
constexpr int32_t kMaxCpus = 1 << 20;

size_t place(CostTerm term) { return static_cast<size_t>(term); }

}  // namespace

std::string_view nameOf(CostTerm term) {
  switch (term) {
    case CostTerm::kCall: return "call";
    case CostTerm::kHop: return "hop";
    case CostTerm::kMessage: return "message";
    case CostTerm::kSlotMb: return "slot_mb";
    case CostTerm::kReferencedMb: return "referenced_mb";
  }
  return "?";
}

CostTerms countTerms(const schedule::Algorithm& algorithm, const CostedCall& call) {
  const schedule::Cost cost = algorithm.cost(call.rankCount);
  const auto bytes = static_cast<double>(call.bytes);
  const double share = std::max(1.0, static_cast<double>(call.rankCount) / call.cpuCount);
  const double factor = std::max(schedule::sentFactor(algorithm, call.rankCount),
                                 schedule::receivedFactor(algorithm, call.rankCount));
  const uint64_t chunkBytes =
      call.bytes / static_cast<uint64_t>(std::max(algorithm.chunkCount(call.rankCount), 1));
  const bool isReferenced =
      call.readsPeers && chunkBytes >= kDirectMinBytes && schedule::isReferable(algorithm);
  CostTerms counts{};
  counts[place(CostTerm::kCall)] = share;
  counts[place(CostTerm::kHop)] = cost.hops * share;
  counts[place(CostTerm::kMessage)] = (cost.sentMessages + cost.receivedMessages) * share;
  counts[place(isReferenced ? CostTerm::kReferencedMb : CostTerm::kSlotMb)] =
      bytes * factor * share / kMb;
  return counts;
}

const CostPrices* Tuning::pricesOf(Collective collective, bool readsPeers) const {
  const auto found = std::ranges::find_if(prices, [&](const CostPrices& each) {
    return each.collective == collective && each.readsPeers == readsPeers;
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
  text += "# us of each: collective, kind of ranks, then price by price\n";
  for (const CostPrices& each : tuning.prices) {
    text += fmt::format("prices {} {}", name(each.collective),
                        each.readsPeers ? "threads" : "processes");
    for (const CostTerm term : kTerms)
      text += fmt::format(" {} {:.6g}", nameOf(term), each.us[place(term)]);
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
    if (tuning_.pricesOf(prices.collective, prices.readsPeers) != nullptr)
      return fault(fmt::format("{} of {} have prices already", collective, kind));
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

CostTerms fitPrices(std::span<const CostSample> samples) {
  // Coordinate by coordinate, each to its best value not below 0: converges, as the sum of squares
  // is convex. Rows are divided by what was measured, so errors are relative.
  constexpr int kRounds = 2000;
  CostTerms prices{};
  std::vector<double> error;  // what is still unexplained of each, 1: all
  for (const CostSample& each : samples) error.push_back(each.us > 0 ? 1 : 0);
  for (int round = 0; round < kRounds; ++round) {
    double moved = 0;
    for (size_t term = 0; term < kCostTermCount; ++term) {
      double along = 0, square = 0;
      for (size_t i = 0; i < samples.size(); ++i) {
        if (samples[i].us <= 0) continue;
        const double part = samples[i].counts[term] / samples[i].us;
        along += part * error[i];
        square += part * part;
      }
      if (square == 0) continue;
      const double change = std::max(along / square, -prices[term]);
      prices[term] += change;
      for (size_t i = 0; i < samples.size(); ++i) {
        if (samples[i].us > 0) error[i] -= change * samples[i].counts[term] / samples[i].us;
      }
      moved = std::max(moved, std::abs(change) / (prices[term] + 1e-12));
    }
    if (moved < 1e-9) break;
  }
  return prices;
}

}  // namespace tutti::plan
