#include "plan/tuning.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "graph/cost_table.h"

namespace tutti::plan {
namespace {

constexpr std::string_view kFirstLine = "tutti tuning 6";
constexpr size_t kMaxFileBytes = 1 << 20;
constexpr int32_t kMaxCpus = 1 << 20;
constexpr double kMaxFigure = 1e12;

constexpr std::array kTerms = {CostTerm::kCall,        CostTerm::kHop,    CostTerm::kLine,
                               CostTerm::kMessage,     CostTerm::kSlotMb, CostTerm::kColdMb,
                               CostTerm::kReferencedMb};
constexpr std::array kNetTerms = {CostTerm::kNetHop, CostTerm::kNetMessage, CostTerm::kNetMb,
                                  CostTerm::kNetFoldedMb, CostTerm::kNetLink};
constexpr std::array kSystems = {System::kTutti, System::kNccl};
constexpr std::array kProtocols = {graph::Protocol::kLl, graph::Protocol::kLl128,
                                   graph::Protocol::kSimple};

template <typename Enum>
size_t place(Enum value) {
  return static_cast<size_t>(value);
}

constexpr std::string_view kCrowded = "crowded";
std::string_view kindOf(bool readsPeers) { return readsPeers ? "threads" : "processes"; }

}  // namespace

std::string_view nameOf(System system) { return system == System::kTutti ? "tutti" : "nccl"; }
std::string_view nameOf(Launch launch) { return launch == Launch::kEager ? "eager" : "graph"; }

const CostPrices* CpuConstants::pricesOf(const schedule::Algorithm& algorithm,
                                         const RankKind& kind) const {
  const std::string_view name = algorithm.followsHosts() ? algorithm.onOneHost : algorithm.name;
  const CostPrices* other = nullptr;
  for (const CostPrices& each : prices) {
    if (each.collective != algorithm.collective || each.algorithm != name ||
        each.kind.readsPeers != kind.readsPeers)
      continue;
    if (each.kind == kind) return &each;
    other = &each;
  }
  return other;
}

double CallPrices::bytesUs(double sentBytes) const {
  constexpr double kBytesPerUs = 1e3;  // at 1 GB/s
  const double near = uptoBytes > 0 ? std::min(sentBytes, uptoBytes) : sentBytes;
  const double us = near / (gbPerSecond * kBytesPerUs);
  return near < sentBytes ? us + (sentBytes - near) / (tailGbPerSecond * kBytesPerUs) : us;
}

namespace {

std::string head(std::string_view device, const Origin& origin) {
  return fmt::format("\ndevice {}\nmachine {}\ndate {}\nhow {}\n", device, origin.machine,
                     origin.date, origin.how);
}

std::string write(const CpuConstants& cpu) {
  std::string text = head("cpu", cpu.origin) + fmt::format("cpus {}\n", cpu.cpuCount);
  text +=
      "# us of each: collective, kind of ranks (crowded: sharing CPUs), algorithm, then price by "
      "price\n";
  for (const CostPrices& each : cpu.prices) {
    text += fmt::format("prices {} {}{} {}", name(each.collective),
                        each.kind.isCrowded ? fmt::format("{} ", kCrowded) : "",
                        kindOf(each.kind.readsPeers), each.algorithm);
    for (const CostTerm term : kTerms)
      text += fmt::format(" {} {:.4g}", nameOf(term), each.us[place(term)]);
    text += '\n';
  }
  return text;
}

std::string write(const SocketConstants& sockets) {
  std::string text = head("sockets", sockets.origin) + "prices";
  for (const CostTerm term : kNetTerms)
    text += fmt::format(" {} {:.4g}", nameOf(term), sockets.us[place(term)]);
  text += '\n';
  if (sockets.wireGbPerSecond > 0)
    text += fmt::format("wire gb_s {:.4g}\n", sockets.wireGbPerSecond);
  return text;
}

std::string write(const GpuConstants& gpu) {
  std::string text = head("gpu", gpu.origin);
  for (const System system : kSystems) {
    const LaunchCost& cost = gpu.eager[place(system)];
    text += fmt::format("launch {} more_us {:.4g} least_us {:.4g}", nameOf(system), cost.moreUs,
                        cost.leastUs);
    text += cost.peerUs > 0 ? fmt::format(" peer_us {:.4g}\n", cost.peerUs) : "\n";
  }
  for (const CallPrices& each : gpu.calls) {
    text += fmt::format("call {} {} {} {} ranks {} fixed_us {:.4g} hop_us {:.4g} gb_s {:.4g}",
                        nameOf(each.system), name(each.collective), each.algorithm,
                        graph::nameOf(each.protocol), each.rankCount, each.fixedUs, each.hopUs,
                        each.gbPerSecond);
    if (each.uptoBytes > 0)
      text +=
          fmt::format(" upto_bytes {:.4g} tail_gb_s {:.4g}", each.uptoBytes, each.tailGbPerSecond);
    text += '\n';
  }
  return text;
}

std::string write(const SimulatorConstants& simulator) {
  const auto& [origin, call, cpuHopUs, gpuHopUs] = simulator;
  std::string text = head("simulator", origin);
  text += fmt::format("cpu_call fixed_us {:.4g} hop_us {:.4g} gb_s {:.4g}\n", call.fixedUs,
                      call.hopUs, call.gbPerSecond);
  text += fmt::format("cpu_network_hop us {:.4g}\ngpu_network_hop", cpuHopUs);
  for (const graph::Protocol protocol : kProtocols)
    text += fmt::format(" {} {:.4g}", graph::nameOf(protocol), gpuHopUs[place(protocol)]);
  return text + '\n';
}

}  // namespace

std::string writeTuning(const Tuning& tuning) {
  std::string text = fmt::format("{}\n", kFirstLine);
  if (tuning.cpu) text += write(*tuning.cpu);
  if (tuning.sockets) text += write(*tuning.sockets);
  if (tuning.gpu) text += write(*tuning.gpu);
  if (tuning.simulator) text += write(*tuning.simulator);
  return text;
}

namespace {

// Words of a line, one after the other.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}
  std::string_view next() {
    skipSpaces();
    const std::string_view word = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(word.size());
    return word;
  }
  std::string_view rest() {
    skipSpaces();
    return rest_;
  }

 private:
  void skipSpaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }
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
      if (line_ > 1 && !line.empty() && !line.starts_with('#')) TUTTI_TRY(parseLine(Words(line)));
    }
    if (origin_ == nullptr) return fault("there is no device in it");
    if (tuning_.cpu && tuning_.cpu->prices.empty()) return fault("device cpu has no prices");
    if (tuning_.gpu && tuning_.gpu->calls.empty()) return fault("device gpu has no calls");
    return std::move(tuning_);
  }

 private:
  Status fault(std::string_view what) const {
    return invalidArgument("{}:{}: {}", source_, line_, what);
  }
  static std::string_view shown(std::string_view word) { return word.substr(0, 32); }

  Status parseLine(Words words) {
    const std::string_view key = words.next();
    if (key == "device") return beginDevice(words.next());
    if (origin_ == nullptr)
      return fault(
          fmt::format("\"{}\": wanted device cpu, sockets, gpu or simulator first", shown(key)));
    if (key == "machine") return take(origin_->machine, words);
    if (key == "date") return take(origin_->date, words);
    if (key == "how") return take(origin_->how, words);
    if (device_ == "cpu" && key == "cpus") return parseCpus(words.next());
    if (device_ == "cpu" && key == "prices") return parsePrices(words);
    if (device_ == "sockets" && key == "prices") return parseSocketPrices(words);
    if (device_ == "sockets" && key == "wire")
      return parseFigure(words, "gb_s", tuning_.sockets->wireGbPerSecond);
    if (device_ == "gpu" && key == "launch") return parseLaunch(words);
    if (device_ == "gpu" && key == "call") return parseCall(words);
    if (device_ == "simulator" && key == "cpu_call")
      return parseRates(words, tuning_.simulator->cpuCall);
    if (device_ == "simulator" && key == "cpu_network_hop")
      return parseFigure(words, "us", tuning_.simulator->cpuNetworkHopUs);
    if (device_ == "simulator" && key == "gpu_network_hop") return parseGpuHops(words);
    return fault(fmt::format("device {} has no \"{}\"", device_, shown(key)));
  }

  static Status take(std::string& text, Words& words) {
    text = words.rest();
    return {};
  }

  Status beginDevice(std::string_view device) {
    if (device == "cpu" && !tuning_.cpu) {
      origin_ = &tuning_.cpu.emplace().origin;
    } else if (device == "sockets" && !tuning_.sockets) {
      origin_ = &tuning_.sockets.emplace().origin;
    } else if (device == "gpu" && !tuning_.gpu) {
      origin_ = &tuning_.gpu.emplace().origin;
    } else if (device == "simulator" && !tuning_.simulator) {
      origin_ = &tuning_.simulator.emplace().origin;
    } else {
      return fault(fmt::format("device \"{}\": wanted cpu, sockets, gpu or simulator, each once",
                               shown(device)));
    }
    device_ = device;
    return {};
  }

  Status parseCpus(std::string_view count) {
    int32_t& cpus = tuning_.cpu->cpuCount;
    if (parseNumber(count, cpus) && cpus >= 1 && cpus <= kMaxCpus) return {};
    return fault(fmt::format("cpus: wanted 1 to {}", kMaxCpus));
  }

  // A label and its figure.
  Status parseFigure(Words& words, std::string_view label, double& figure) {
    if (words.next() == label && parseNumber(words.next(), figure) && figure >= 0 &&
        figure <= kMaxFigure)
      return {};
    return fault(fmt::format("wanted {} and a number that is not negative", label));
  }

  Status parseRates(Words& words, CallPrices& prices) {
    TUTTI_TRY(parseFigure(words, "fixed_us", prices.fixedUs));
    TUTTI_TRY(parseFigure(words, "hop_us", prices.hopUs));
    TUTTI_TRY(parseFigure(words, "gb_s", prices.gbPerSecond));
    if (prices.gbPerSecond <= 0) return fault("gb_s: wanted more than 0");
    return {};
  }

  Status parseTail(Words& words, CallPrices& prices) {
    TUTTI_TRY(parseFigure(words, "upto_bytes", prices.uptoBytes));
    TUTTI_TRY(parseFigure(words, "tail_gb_s", prices.tailGbPerSecond));
    if (prices.uptoBytes <= 0 || prices.tailGbPerSecond <= 0)
      return fault("upto_bytes and tail_gb_s: wanted more than 0");
    return {};
  }

  Status parseCollective(std::string_view word, Collective& collective) {
    const std::optional<Collective> found = findCollective(word);
    if (!found) return fault(fmt::format("\"{}\" is no collective", shown(word)));
    collective = *found;
    return {};
  }

  Status parseSystem(std::string_view word, System& system) {
    for (const System each : kSystems) {
      if (nameOf(each) != word) continue;
      system = each;
      return {};
    }
    return fault(fmt::format("\"{}\": wanted tutti or nccl", shown(word)));
  }

  Status parseAlgorithm(std::string_view word, Collective collective,
                        const schedule::Algorithm*& algorithm) {
    algorithm = schedule::findAlgorithm(collective, word);
    if (algorithm != nullptr) return {};
    return fault(fmt::format("{} has no algorithm \"{}\"", name(collective), shown(word)));
  }

  Status parsePrices(Words& words) {
    CostPrices prices;
    TUTTI_TRY(parseCollective(words.next(), prices.collective));
    std::string_view kind = words.next();
    prices.kind.isCrowded = kind == kCrowded;
    if (prices.kind.isCrowded) kind = words.next();
    if (kind != kindOf(true) && kind != kindOf(false))
      return fault(fmt::format("\"{}\": wanted threads or processes", shown(kind)));
    prices.kind.readsPeers = kind == kindOf(true);
    const schedule::Algorithm* algorithm = nullptr;
    TUTTI_TRY(parseAlgorithm(words.next(), prices.collective, algorithm));
    prices.algorithm = algorithm->name;
    const CostPrices* known = tuning_.cpu->pricesOf(*algorithm, prices.kind);
    if (known != nullptr && known->kind == prices.kind)
      return fault(fmt::format("{} of {} by {} has prices already", name(prices.collective), kind,
                               algorithm->name));
    for (const CostTerm term : kTerms)
      TUTTI_TRY(parseFigure(words, nameOf(term), prices.us[place(term)]));
    tuning_.cpu->prices.push_back(prices);
    return {};
  }

  Status parseSocketPrices(Words& words) {
    for (const CostTerm term : kNetTerms) {
      if (term == CostTerm::kNetFoldedMb && words.rest().empty())
        return {};  // of before 2026-11-29
      TUTTI_TRY(parseFigure(words, nameOf(term), tuning_.sockets->us[place(term)]));
    }
    return {};
  }

  Status parseLaunch(Words& words) {
    System system{};
    TUTTI_TRY(parseSystem(words.next(), system));
    LaunchCost& cost = tuning_.gpu->eager[place(system)];
    TUTTI_TRY(parseFigure(words, "more_us", cost.moreUs));
    TUTTI_TRY(parseFigure(words, "least_us", cost.leastUs));
    if (words.rest().empty()) return {};
    return parseFigure(words, "peer_us", cost.peerUs);
  }

  Status parseCall(Words& words) {
    CallPrices prices;
    TUTTI_TRY(parseSystem(words.next(), prices.system));
    TUTTI_TRY(parseCollective(words.next(), prices.collective));
    const schedule::Algorithm* algorithm = nullptr;
    TUTTI_TRY(parseAlgorithm(words.next(), prices.collective, algorithm));
    prices.algorithm = algorithm->name;
    const std::string_view protocol = words.next();
    const auto* found = std::ranges::find_if(
        kProtocols, [&](graph::Protocol each) { return graph::nameOf(each) == protocol; });
    if (found == kProtocols.end())
      return fault(fmt::format("\"{}\": wanted LL, LL128 or Simple", shown(protocol)));
    prices.protocol = *found;
    double ranks = 0;
    TUTTI_TRY(parseFigure(words, "ranks", ranks));
    prices.rankCount = static_cast<int32_t>(ranks);
    if (prices.rankCount < 2) return fault("ranks: wanted 2 or more");
    TUTTI_TRY(parseRates(words, prices));
    if (!words.rest().empty()) TUTTI_TRY(parseTail(words, prices));
    tuning_.gpu->calls.push_back(prices);
    return {};
  }

  Status parseGpuHops(Words& words) {
    for (const graph::Protocol each : kProtocols)
      TUTTI_TRY(
          parseFigure(words, graph::nameOf(each), tuning_.simulator->gpuNetworkHopUs[place(each)]));
    return {};
  }

  std::string_view text_;
  const std::string& source_;
  int line_ = 0;
  Tuning tuning_;
  std::string_view device_;   // whose lines these are
  Origin* origin_ = nullptr;  // of that one
};

}  // namespace

Result<Tuning> parseTuning(std::string_view text, const std::string& source) {
  return TuningParser(text, source).parse();
}

}  // namespace tutti::plan
