// Steps of fault_rank that are its process's own, and need no communicator: rank.cc lists them.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tutti::faults {

using Step = std::vector<std::string>;  // its name and arguments

// What a step came to. `message`: an error's, or what was asked for.
struct Outcome {
  int code = 0;
  std::string message;
};

constexpr int kNoSuchStep = 98;

std::chrono::milliseconds spanOf(const Step& step, size_t at = 1);

// By name.
const std::map<std::string, std::function<Outcome(const Step&)>>& processSteps();

}  // namespace tutti::faults
