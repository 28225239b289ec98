#include "tools/trace_join.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

namespace tutti::tools {
namespace {

using Json = nlohmann::json;

constexpr const char* kSchema = "tutti.trace/1";
// Enough for rings of a hundred hosts; of longer ones clocks are then nearer than they were.
constexpr int kMostRounds = 20000;
constexpr double kCloseUs = 0.001;

const Json& facts(const RankTrace& trace) { return trace.document.at("otherData"); }
std::string clockOf(const RankTrace& trace) { return facts(trace).at("clock"); }

// The time of the quickest message between two clocks, by the wall clocks as they are.
using Edges = std::map<std::pair<std::string, std::string>, double>;

Edges quickestMessages(const std::vector<RankTrace>& traces,
                       const std::map<std::string, double>& shifts) {
  struct Sent {
    std::string clock;
    double at = 0;
  };
  std::map<std::string, Sent> sent;
  const auto each = [&](const char* phase, const auto& visit) {
    for (const RankTrace& trace : traces) {
      const std::string clock = clockOf(trace);
      for (const Json& event : trace.document.at("traceEvents")) {
        if (event.at("ph") == phase && event.contains("id"))
          visit(event.at("id").get<std::string>(), clock,
                event.at("ts").get<double>() + shifts.at(clock));
      }
    }
  };
  each("s", [&](const std::string& id, const std::string& clock, double at) {
    sent[id] = {.clock = clock, .at = at};
  });
  Edges edges;
  each("f", [&](const std::string& id, const std::string& clock, double at) {
    const auto from = sent.find(id);
    if (from == sent.end() || from->second.clock == clock) return;
    const double took = at - from->second.at;
    const auto [known, isNew] = edges.try_emplace({from->second.clock, clock}, took);
    if (!isNew) known->second = std::min(known->second, took);
  });
  return edges;
}

// One quickest message between two clocks, by number.
struct Hop {
  size_t from = 0;
  size_t to = 0;
  double took = 0;
};

// Least squares, one clock after the other: all hops take the same time. By clock, what is to be
// added to its times.
std::vector<double> levelHops(const std::vector<Hop>& hops, size_t clockCount) {
  std::vector<double> offsets(clockCount);
  std::vector<std::vector<const Hop*>> of(clockCount);
  for (const Hop& hop : hops) {
    of[hop.from].push_back(&hop);
    of[hop.to].push_back(&hop);
  }
  const auto timeOf = [&offsets](const Hop& hop) {
    return hop.took + offsets[hop.to] - offsets[hop.from];
  };
  double change = kCloseUs;
  for (int round = 0; round < kMostRounds && change >= kCloseUs; ++round) {
    double usual = 0;
    for (const Hop& hop : hops) usual += timeOf(hop) / static_cast<double>(hops.size());
    change = 0;
    for (size_t clock = 0; clock < clockCount; ++clock) {
      double late = 0;
      for (const Hop* hop : of[clock]) late += (hop->to == clock ? 1 : -1) * (timeOf(*hop) - usual);
      late /= static_cast<double>(of[clock].size());
      offsets[clock] -= late;
      change = std::max(change, std::abs(late));
    }
  }
  // Where messages went one way only, any difference will do that lets none arrive before it left.
  for (size_t round = 0; round < clockCount; ++round) {
    for (const Hop& hop : hops) offsets[hop.to] += std::max(0.0, -timeOf(hop));
  }
  return offsets;
}

std::map<std::string, double> solve(const Edges& edges) {
  std::map<std::string, size_t> numbers;
  std::vector<Hop> hops;
  const auto numberOf = [&numbers](const std::string& clock) {
    return numbers.try_emplace(clock, numbers.size()).first->second;
  };
  for (const auto& [ends, took] : edges)
    hops.push_back({.from = numberOf(ends.first), .to = numberOf(ends.second), .took = took});
  const std::vector<double> offsets = levelHops(hops, numbers.size());
  std::map<std::string, double> byName;
  for (const auto& [clock, number] : numbers) byName[clock] = offsets[number];
  return byName;
}

double firstTime(const std::vector<RankTrace>& traces,
                 const std::map<std::string, double>& shifts) {
  double first = std::numeric_limits<double>::infinity();
  for (const RankTrace& trace : traces) {
    for (const Json& event : trace.document.at("traceEvents")) {
      if (event.contains("ts"))
        first = std::min(first, event.at("ts").get<double>() + shifts.at(clockOf(trace)));
    }
  }
  return first;
}

// "rank 3 (node1, pid 17)", with the communicator where there are several.
void nameRank(Json& event, const RankTrace& trace, bool hasOthers) {
  if (event.at("name") != "process_name" || !hasOthers) return;
  const std::string name = facts(trace).at("name");
  const std::string communicator = facts(trace).at("communicator");
  event["args"]["name"] = fmt::format("{} of {}", event["args"]["name"].get<std::string>(),
                                      name.empty() ? "communicator " + communicator : name);
}

// Whatever bytes are in it.
std::string textOf(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Status checkTrace(const RankTrace& trace) {
  const auto refuse = [&trace](std::string_view why) {
    return invalidArgument("{}: {}: not a trace of TUTTI_TRACE_DIR", trace.path, why);
  };
  const Json& document = trace.document;
  if (document.is_discarded()) return refuse("no JSON, or cut off");
  if (!document.is_object() || !document.contains("otherData")) return refuse("no \"otherData\"");
  const Json& other = document["otherData"];
  if (!other.is_object() || other.value("schema", Json()) != kSchema)
    return refuse(fmt::format("its \"schema\" is {}, wanted \"{}\"",
                              textOf(other.value("schema", Json())), kSchema));
  for (const char* key : {"clock", "communicator", "name", "host"}) {
    if (!other.value(key, Json()).is_string()) return refuse(fmt::format("no \"{}\"", key));
  }
  for (const char* key : {"rank", "process_id", "wall_clock_offset_us", "dropped_events"}) {
    if (!other.value(key, Json()).is_number()) return refuse(fmt::format("no \"{}\"", key));
  }
  const Json events = document.value("traceEvents", Json());
  if (!events.is_array()) return refuse("no \"traceEvents\"");
  for (const Json& event : events) {
    const bool isEvent = event.is_object() && event.value("ph", Json()).is_string() &&
                         event.value("name", Json()).is_string();
    if (!isEvent) return refuse("an event without a name");
    if (event.contains("ts") && !event["ts"].is_number()) return refuse("a time that is none");
    if (event["ph"] == "M" && !event.value("args", Json()).is_object())
      return refuse("a name without arguments");
  }
  return {};
}

std::map<std::string, double> alignClocks(const std::vector<RankTrace>& traces) {
  std::map<std::string, double> shifts;
  if (traces.empty()) return shifts;
  // Relative to each other: as microseconds since 1970 they would be too long for a double.
  const double base = facts(traces.front()).at("wall_clock_offset_us");
  for (const RankTrace& trace : traces)
    shifts.try_emplace(clockOf(trace),
                       facts(trace).at("wall_clock_offset_us").get<double>() - base);
  for (const auto& [clock, offset] : solve(quickestMessages(traces, shifts)))
    shifts[clock] += offset;
  return shifts;
}

nlohmann::json joinTraces(std::vector<RankTrace> traces,
                          const std::map<std::string, double>& shifts) {
  const auto place = [](const RankTrace& trace) {
    return std::tuple(facts(trace).at("communicator").get<std::string>(),
                      facts(trace).at("rank").get<int>(), facts(trace).at("process_id").get<int>());
  };
  std::ranges::stable_sort(traces, {}, place);
  std::set<std::string> communicators;
  for (const RankTrace& trace : traces) communicators.insert(facts(trace).at("communicator"));
  const double first = firstTime(traces, shifts);
  // Beyond what the wall clocks say, as the first rank sees it.
  const auto correction = [&](const Json& of) {
    return shifts.at(of.at("clock")) - of.at("wall_clock_offset_us").get<double>();
  };
  const double ownCorrection = traces.empty() ? 0 : correction(facts(traces.front()));
  Json joined = {{"displayTimeUnit", "ns"},
                 {"otherData", {{"schema", "tutti.trace.joined/1"}, {"ranks", Json::array()}}},
                 {"traceEvents", Json::array()}};
  for (size_t process = 0; process < traces.size(); ++process) {
    RankTrace& trace = traces[process];
    const double shift = shifts.at(clockOf(trace)) - first;
    Json about = facts(trace);
    about["clock_shift_us"] = correction(about) - ownCorrection;
    joined["otherData"]["ranks"].push_back(std::move(about));
    for (Json& event : trace.document.at("traceEvents")) {
      event["pid"] = process;
      if (event.contains("ts")) event["ts"] = event["ts"].get<double>() + shift;
      if (event["ph"] == "M") nameRank(event, trace, communicators.size() > 1);
      if (event["name"] == "process_sort_index") event["args"]["sort_index"] = process;
      joined["traceEvents"].push_back(std::move(event));
    }
  }
  return joined;
}

}  // namespace tutti::tools
