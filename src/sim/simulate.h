// A call event by event: lanes walk their programs, steps wait for messages and slots, messages
// share the links they cross. What closed forms only bound: fill and drain of pipelines, waits for
// slots, collisions of flows. Deterministic; one of each class of lanes stands for all. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sim/classes.h"
#include "sim/closed_form.h"

namespace tutti::sim {

enum class Fidelity : uint8_t {
  kClosed,  // closed_form.h
  kLogGp,   // latency, gap and bytes at the ends of each route; nothing collides between
  kFair,    // every link shared max-min fairly
};
std::string_view nameOf(Fidelity fidelity);

struct SimOptions {
  Fidelity fidelity = Fidelity::kFair;
  Timing timing{};
  std::optional<CallPrices> prices{};  // an estimate's; none: those of the method's protocol
  int64_t mostEvents = 200'000'000;    // an error beyond; about 5 million a second
  Rank timelineRank{-1};               // whose lanes' steps are recorded; -1: nobody's
};

// What a lane did.
struct Span {
  double startUs = 0;
  double endUs = 0;
  int32_t channel = 0;
  int32_t step = 0;
  int64_t piece = 0;
  int32_t chunk = 0;
  uint64_t bytes = 0;
  Rank from{-1};  // whose message it read last; -1: none
  Rank to{-1};    // where it sent; -1: nowhere
};

struct SimResult {
  double us = 0;
  int64_t events = 0;
  int64_t flows = 0;  // of all lanes
  Classes classes;
  std::vector<double> linkWireBytes;  // by class of link: over one of its members
  std::vector<Span> timeline;
};

Result<SimResult> simulate(const Traffic& traffic, const SimOptions& options);

}  // namespace tutti::sim
