#include "tools/perf_report.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/version.h"
#include "base/whole_file.h"
#include "tools/perf_html.h"

namespace tutti::tools {
namespace {

constexpr double kMicroseconds = 1e6;
constexpr int kStandardError = 2;

// Seven columns, with the digits that fit. Below 10 µs three decimals: CPU ranks take 0.2 µs.
std::string timeColumn(double seconds) {
  const double us = seconds * kMicroseconds;
  if (us < 9.9995) return fmt::format("{:7.3f}", us);
  if (us < 99.995) return fmt::format("{:7.2f}", us);
  if (us < 9999.95) return fmt::format("{:7.1f}", us);
  return fmt::format("{:7.0f}", us);
}

std::string measurementColumns(const Measurement& measurement) {
  const std::string wrong =
      measurement.wrong ? fmt::format("{}", *measurement.wrong) : std::string("N/A");
  std::string peer;
  if (measurement.peerSeconds)
    peer = fmt::format("  {}  {:5.2f}", timeColumn(*measurement.peerSeconds), *measurement.ratio());
  return fmt::format("  {}  {:6.2f}  {:6.2f}  {:>5}{}", timeColumn(measurement.seconds),
                     measurement.algorithmGBs, measurement.busGBs, wrong, peer);
}

std::string_view opColumn(const Row& row) { return row.op ? columnName(*row.op) : "none"; }

std::string stepText(const PerfOptions& options) {
  if (options.stepFactor != 0) return fmt::format("{}(factor)", options.stepFactor);
  return fmt::format("{}(bytes)", options.stepBytes);
}

nlohmann::ordered_json toJson(const Measurement& measurement) {
  nlohmann::ordered_json json;
  json["time_us"] = measurement.seconds * kMicroseconds;
  json["fastest_rank_us"] = measurement.fastestSeconds * kMicroseconds;
  json["slowest_rank_us"] = measurement.slowestSeconds * kMicroseconds;
  json["iterations"] = measurement.iterations;
  json["algbw_gbs"] = measurement.algorithmGBs;
  json["busbw_gbs"] = measurement.busGBs;
  json["wrong"] = measurement.wrong ? nlohmann::ordered_json(*measurement.wrong) : nullptr;
  if (measurement.peerSeconds) {
    json["peer_time_us"] = *measurement.peerSeconds * kMicroseconds;
    json["ratio"] = *measurement.ratio();
  }
  return json;
}

nlohmann::ordered_json toJson(const Row& row) {
  nlohmann::ordered_json json;
  json["size"] = row.bytes;
  json["count"] = row.count;
  json["type"] = columnName(row.type);
  json["redop"] = opColumn(row);
  json["root"] = row.root.value_or(-1);
  json["out_of_place"] = toJson(row.outOfPlace);
  json["in_place"] = toJson(row.inPlace);
  return json;
}

nlohmann::ordered_json placesToJson(const std::vector<PlacedRank>& places) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PlacedRank& place : places) {
    list.push_back({{"rank", place.rank}, {"pid", place.pid}, {"host", place.host}});
  }
  return list;
}

void writeCsvSide(std::FILE* file, const Measurement& measurement) {
  const std::string wrong = measurement.wrong ? fmt::format("{}", *measurement.wrong) : "";
  fmt::print(file, ",{:.4f},{:.6g},{:.6g},{}", measurement.seconds * kMicroseconds,
             measurement.algorithmGBs, measurement.busGBs, wrong);
  if (measurement.peerSeconds)
    fmt::print(file, ",{:.4f},{:.3f}", *measurement.peerSeconds * kMicroseconds,
               *measurement.ratio());
}

}  // namespace

std::string headerOf(const PerfOptions& options, const RunInfo& info) {
  std::string text;
  text += fmt::format("# tutti perf {} nccl-headers={} nccl-library={}\n", kVersion,
                      kInterfaceVersionCode, info.libraryVersion);
  text += fmt::format("# Collective test starting: {}_perf\n", name(options.operation));
  text += fmt::format(
      "# nThread {} nGpus 1 minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} "
      "agg iters: {} validation: {} graph: {}\n",
      options.threads, options.minBytes, options.maxBytes, stepText(options), options.warmups,
      options.iterations == 0 ? "auto" : fmt::format("{}", options.iterations), options.aggregate,
      options.checks, options.graphLaunches);
  if (info.peerVersion != 0) {
    text += fmt::format("# peer (in turn, medians of rounds): {} nccl-library={}{}\n",
                        options.peerLibrary, info.peerVersion,
                        options.peerRegistration
                            ? fmt::format(" -R {}", static_cast<int>(*options.peerRegistration))
                            : "");
  }
  text += "#\n# Using devices\n";
  for (const PlacedRank& place : info.places) {
    const std::string_view path = place.gpu < 0 ? std::string_view() : name(info.path);
    text += fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} device {:2} {}{}{}\n", place.rank,
                        place.pid, place.host, place.gpu < 0 ? place.rank : place.gpu,
                        place.gpu < 0 ? "[cpu] CPU rank" : "[gpu] GPU rank",
                        path.empty() ? "" : ", ", path);
  }
  text += "#\n";
  const bool hasPeer = info.peerVersion != 0;
  text += fmt::format("# {:>73}{:>{}}\n", "out-of-place", "in-place          ", hasPeer ? 57 : 41);
  text += fmt::format("# {:>10}{:>14}{:>10}{:>8}{:>8}", "size", "count", "type", "redop", "root");
  for (int side = 0; side < 2; ++side) {
    text += fmt::format("  {:>7}  {:>6}  {:>6} {:>6}", "time", "algbw", "busbw", "#wrong");
    if (hasPeer) text += fmt::format("  {:>7}  {:>5}", "peer", "ratio");
  }
  text += fmt::format("\n# {:>10}{:>14}{:26}", "(B)", "(elements)", "");
  for (int side = 0; side < 2; ++side) {
    text += fmt::format("  {:>7}  {:>6}  {:>6} {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
    if (hasPeer) text += fmt::format("  {:>7}  {:>5}", "(us)", "");
  }
  return text;
}

std::string lineOf(const Row& row) {
  return fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}", row.bytes, row.count, columnName(row.type),
                     opColumn(row), row.root.value_or(-1)) +
         measurementColumns(row.outOfPlace) + measurementColumns(row.inPlace);
}

std::string footerOf(const PerfOptions& options, const Summary& summary) {
  return fmt::format(
      "# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:g} {}\n#\n"
      "# Collective test concluded: {}_perf\n#",
      summary.wrong, summary.wrong == 0 ? "OK" : "FAILED", summary.averageBusGBs,
      summary.isBelowMinimum ? "FAILED" : "", name(options.operation));
}

PerfReport::PerfReport(const PerfOptions& options, const RunInfo& info)
    : options_(options), info_(info) {
  printsTable_ = options.jsonPath != "-" && options.csvPath != "-";
  showsProgress_ = ::isatty(kStandardError) == 1;
}

PerfReport::~PerfReport() {
  clearProgress();
  if (csv_ != nullptr && csv_ != stdout) std::fclose(csv_);
}

Result<std::unique_ptr<PerfReport>> PerfReport::open(const PerfOptions& options,
                                                     const RunInfo& info) {
  for (const std::string& path : {options.jsonPath, options.htmlPath}) {
    if (!path.empty() && path != "-") TUTTI_TRY(checkWritable(path));
  }
  std::unique_ptr<PerfReport> report(new PerfReport(options, info));
  if (!options.csvPath.empty()) {
    report->csv_ = options.csvPath == "-" ? stdout : std::fopen(options.csvPath.c_str(), "we");
    if (report->csv_ == nullptr) return systemError("create", options.csvPath, errno);
    const bool hasPeer = info.peerVersion != 0;
    fmt::print(report->csv_, "size,count,type,redop,root");
    for (const char* side : {"out_of_place", "in_place"}) {
      fmt::print(report->csv_, ",{0}_us,{0}_algbw_gbs,{0}_busbw_gbs,{0}_wrong", side);
      if (hasPeer) fmt::print(report->csv_, ",{0}_peer_us,{0}_ratio", side);
    }
    fmt::print(report->csv_, "\n");
  }
  if (report->printsTable_) {
    fmt::print("{}\n", headerOf(options, info));
    std::fflush(stdout);
  }
  return report;
}

void PerfReport::showProgress(size_t row, size_t rowCount, size_t bytes) {
  if (!showsProgress_) return;
  fmt::print(stderr, "\r[{}/{}] {} bytes\x1b[K", row, rowCount, bytes);
  std::fflush(stderr);
  hasProgress_ = true;
}

void PerfReport::clearProgress() {
  if (!hasProgress_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  hasProgress_ = false;
}

void PerfReport::add(const Row& row) {
  clearProgress();
  rows_.push_back(row);
  if (csv_ != nullptr) {
    fmt::print(csv_, "{},{},{},{},{}", row.bytes, row.count, columnName(row.type), opColumn(row),
               row.root.value_or(-1));
    writeCsvSide(csv_, row.outOfPlace);
    writeCsvSide(csv_, row.inPlace);
    fmt::print(csv_, "\n");
    std::fflush(csv_);
  }
  if (printsTable_) {
    fmt::print("{}\n", lineOf(row));
    std::fflush(stdout);
  }
}

Summary PerfReport::summary(const std::optional<double>& minBandwidth) const {
  Summary summary;
  double total = 0;
  for (const Row& row : rows_) {
    summary.wrong += row.outOfPlace.wrong.value_or(0) + row.inPlace.wrong.value_or(0);
    total += row.outOfPlace.busGBs + row.inPlace.busGBs;
  }
  if (!rows_.empty()) summary.averageBusGBs = total / (2 * static_cast<double>(rows_.size()));
  summary.isBelowMinimum = minBandwidth && summary.averageBusGBs < *minBandwidth;
  return summary;
}

Status PerfReport::writeJson(const Summary& summary) const {
  nlohmann::ordered_json json;
  json["tutti"] = kVersion;
  json["nccl_library"] = info_.libraryVersion;
  if (info_.peerVersion != 0) {
    json["peer"] = options_.peerLibrary;
    json["peer_nccl_library"] = info_.peerVersion;
  }
  json["collective"] = name(options_.operation);
  json["ranks"] = info_.rankCount;
  json["places"] = placesToJson(info_.places);
  if (info_.path != GpuPath::kUnknown) json["path"] = name(info_.path);
  json["results"] = nlohmann::ordered_json::array();
  for (const Row& row : rows_) json["results"].push_back(toJson(row));
  json["out_of_bounds"] = summary.wrong;
  json["avg_busbw_gbs"] = summary.averageBusGBs;
  const std::string text = json.dump(2) + "\n";
  if (options_.jsonPath != "-") return writeWholeFile(options_.jsonPath, text, kForAll);
  const bool isWritten = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!isWritten || std::fflush(stdout) != 0) return systemError("write", "standard output", errno);
  return {};
}

Status PerfReport::writeHtml(const Summary& summary) const {
  const std::string text = pageOf({.options = options_,
                                   .info = info_,
                                   .rows = rows_,
                                   .summary = summary,
                                   .facts = gatherPageFacts()});
  return writeWholeFile(options_.htmlPath, text, kForAll);
}

Status PerfReport::finish(const std::optional<double>& minBandwidth) {
  clearProgress();
  const Summary total = summary(minBandwidth);
  if (printsTable_) fmt::print("{}\n", footerOf(options_, total));
  if (!options_.jsonPath.empty()) TUTTI_TRY(writeJson(total));
  if (!options_.htmlPath.empty()) TUTTI_TRY(writeHtml(total));
  if (csv_ != nullptr && (std::fflush(csv_) != 0 || std::ferror(csv_) != 0)) {
    return systemError("write", options_.csvPath, errno);
  }
  if (std::fflush(stdout) != 0) return systemError("write", "standard output", errno);
  return {};
}

}  // namespace tutti::tools
