// tutti trace: joins the ranks' traces (TUTTI_TRACE_DIR) on one clock, says what is in them, and
// draws them.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "base/whole_file.h"
#include "tools/command.h"
#include "tools/trace_join.h"
#include "tools/trace_picture.h"

namespace tutti::tools {
namespace {

using Json = nlohmann::json;

struct Options {
  std::vector<std::string> places;
  std::string output;
  std::string picture;
  std::string call;
};

// Files as they are, and the traces of folders.
Result<std::vector<std::string>> filesOf(const std::vector<std::string>& places) {
  std::vector<std::string> files;
  for (const std::string& place : places) {
    std::error_code error;
    if (!std::filesystem::is_directory(place, error)) {
      files.push_back(place);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(place, error)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("trace-") && name.ends_with(".json")) files.push_back(entry.path());
    }
    if (error) return invalidArgument("{}: {}", place, error.message());
  }
  if (files.empty())
    return invalidArgument(
        "{}: no trace there; files trace-*.json (TUTTI_TRACE_DIR) are looked for",
        fmt::join(places, ", "));
  std::ranges::sort(files);
  return files;
}

Result<std::vector<RankTrace>> readAll(const std::vector<std::string>& places) {
  constexpr size_t kMostTraceBytes = 1024_MiB;
  TUTTI_TRY_ASSIGN(const std::vector<std::string> files, filesOf(places));
  std::vector<RankTrace> traces;
  for (const std::string& path : files) {
    TUTTI_TRY_ASSIGN(const std::string text, readFileOrPipe(path, kMostTraceBytes));
    RankTrace trace{.path = path, .document = Json::parse(text, nullptr, false)};
    TUTTI_TRY(checkTrace(trace));
    traces.push_back(std::move(trace));
  }
  return traces;
}

struct Sums {
  size_t calls = 0, sent = 0, received = 0;
  double callUs = 0;
};

std::vector<Sums> sumsOf(const Json& joined) {
  std::vector<Sums> sums(joined.at("otherData").at("ranks").size());
  for (const Json& event : joined.at("traceEvents")) {
    Sums& of = sums.at(event.at("pid").get<size_t>());
    if (event.value("cat", "") == "call") {
      ++of.calls;
      of.callUs += event.at("dur").get<double>();
    }
    of.sent += event.at("ph") == "s" ? 1 : 0;
    of.received += event.at("ph") == "f" ? 1 : 0;
  }
  return sums;
}

void printSummary(const Json& joined) {
  const std::vector<Sums> sums = sumsOf(joined);
  fmt::print("{:<18} {:>5} {:<16} {:>7} {:>12} {:>8} {:>8} {:>16} {:>8}\n", "communicator", "rank",
             "host", "calls", "in calls us", "sent", "received", "clock shift us", "dropped");
  for (size_t i = 0; i < sums.size(); ++i) {
    const Json& rank = joined["otherData"]["ranks"][i];
    fmt::print("{:<18} {:>5} {:<16} {:>7} {:>12.1f} {:>8} {:>8} {:>16.1f} {:>8}\n",
               rank.at("communicator").get<std::string>(), rank.at("rank").get<int>(),
               rank.at("host").get<std::string>(), sums[i].calls, sums[i].callUs, sums[i].sent,
               sums[i].received, rank.at("clock_shift_us").get<double>(),
               rank.at("dropped_events").get<int64_t>());
  }
}

// Bytes that are no UTF-8 were replaced when the traces were written.
Status writeAll(const Options& options, const Json& joined) {
  if (!options.output.empty())
    TUTTI_TRY(writeWholeFile(options.output, joined.dump() + "\n", kForAll));
  if (options.picture.empty()) return {};
  TUTTI_TRY_ASSIGN(const std::string picture, drawTrace(joined, options.call));
  return writeWholeFile(options.picture, picture, kForAll);
}

Status showTraces(const Options& options) {
  TUTTI_TRY_ASSIGN(std::vector<RankTrace> traces, readAll(options.places));
  const auto shifts = alignClocks(traces);
  const Json joined = joinTraces(std::move(traces), shifts);
  TUTTI_TRY(writeAll(options, joined));
  printSummary(joined);
  return {};
}

}  // namespace

void addTrace(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<Options>();  // shared by the options and the callback
  CLI::App* command =
      app.add_subcommand("trace", "Join the ranks' traces on one clock, and draw them");
  command->add_option("place", options->places, "Traces, or folders with some (TUTTI_TRACE_DIR)")
      ->required()
      ->option_text("FILE|FOLDER ...");
  command
      ->add_option("-o,--output", options->output,
                   "Write one trace of all ranks, for ui.perfetto.dev or chrome://tracing")
      ->option_text("FILE.json");
  command->add_option("--svg", options->picture, "Write a picture of them")
      ->option_text("FILE.svg");
  command
      ->add_option("--call", options->call,
                   "Draw only the time of the calls whose names begin so: \"AllReduce #3\"")
      ->option_text("NAME");
  command->footer(
      "Exit code: 0 done, 2 usage, 3 a trace cannot be read or written.\n"
      "Example: tutti trace traces -o job.json --svg job.svg --call \"AllReduce #3 \"");
  command->callback([options, &exitCode] {
    if (const Status shown = showTraces(*options); !shown.ok()) {
      fmt::print(stderr, "tutti trace: {}\n", shown.message());
      exitCode = kExitEnvironment;
    }
  });
}

}  // namespace tutti::tools
