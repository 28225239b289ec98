#include "channel/motors.h"

namespace tutti::channel {
namespace {

// Some hundred microseconds: longer than a partner takes to answer.
constexpr uint32_t kIdleRunsUntilQuiet = 256;
constexpr uint32_t kLooksBetweenQuiet = 8;

}  // namespace

void Motors::add(transport::Motor* motor) {
  all_.push_back({.motor = motor, .isReceiver = !motor->sends()});
  if (motor->sends()) senders_.push_back(motor);
}

bool Motors::run() {
  const bool isForAll = !isReceiving_ || ++looks_ % kLooksBetweenQuiet == 0;
  bool hasMoved = false;
  isReceiving_ = false;
  for (Each& each : all_) {
    const bool isQuiet = each.idleRuns == kIdleRunsUntilQuiet;
    if (isQuiet && !isForAll) continue;
    if (each.motor->run()) {
      hasMoved = true;
      each.idleRuns = 0;
    } else if (each.isReceiver && !isQuiet) {
      ++each.idleRuns;
    }
    isReceiving_ |= each.isReceiver && each.idleRuns < kIdleRunsUntilQuiet;
  }
  return hasMoved;
}

void Motors::runSenders() {
  for (transport::Motor* motor : senders_) motor->run();
}

void Motors::attend() {
  for (const Each& each : all_) each.motor->attend();
}

void Motors::settle() {
  for (const Each& each : all_) each.motor->settle();
}

}  // namespace tutti::channel
