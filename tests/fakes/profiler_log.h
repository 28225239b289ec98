// What the tests' profiler plug-in (profiler.c) wrote down of what it was told. Only tests include
// this.
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace tutti::testing_profiler {

constexpr int kKernelChannelStop = 22;

struct Event {
  int kind = 0;
  int parent = 0;
  int stops = 0;
  int stoppedParents = 0;  // when it stopped: those above it that had
  int64_t ended = 0;       // a kernel's, by the plug-in's argument
  std::string line{};      // that began it
};

// By event.
struct Told {
  std::map<int, Event> events;
  size_t strange = 0;  // lines about events that had ended
  size_t finalizes = 0;

  size_t count(int kind) const {
    size_t found = 0;
    for (const auto& [number, event] : events) found += event.kind == kind;
    return found;
  }
  int kindOf(int number) const {
    const auto found = events.find(number);
    return found == events.end() ? 0 : found->second.kind;
  }
};

// Removes the file.
inline Told read(const std::string& path) {
  Told told;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::stringstream words(line);
    std::string verb, word;
    int number = 0, state = 0;
    words >> verb >> number;
    if (verb == "start") {
      Event& event = told.events[number];
      words >> word >> event.kind >> word >> event.parent;
      event.line = line;
    } else if (verb == "state") {
      words >> word >> state;
      if (state == kKernelChannelStop) words >> word >> told.events[number].ended;
    } else if (verb == "stop") {
      Event& event = told.events[number];
      ++event.stops;
      const auto parent = told.events.find(event.parent);
      if (parent != told.events.end()) event.stoppedParents += parent->second.stops;
    }
    told.strange += verb == "late" || verb == "twice";
    told.finalizes += verb == "finalize";
  }
  std::remove(path.c_str());
  return told;
}

}  // namespace tutti::testing_profiler
