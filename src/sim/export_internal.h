// What the files of export.h share. Included by them only.
#pragma once

#include "sim/export.h"

namespace tutti::sim {

Status writeJsonLines(const FlowTable& table, const Sink& sink);
Status writeSimai(const FlowTable& table, const Sink& sink);
Status writeHtsim(const FlowTable& table, const Sink& sink);
Status writeGoal(const FlowTable& table, const Sink& sink);
Status writeGoalBinary(const FlowTable& table, const Sink& sink);
Status writeChakra(const FlowTable& table, const Sink& sink);
Status writeMsccl(const FlowTable& table, const Sink& sink);

// What tells the messages between two ranks apart where a form has tags: channel and place.
inline constexpr int kPlaceBits = 24;
Result<uint32_t> tagOf(int32_t channel, int64_t place);
// What a rank itself needs for a step: its bytes at the lane's speed.
uint64_t calcNanoseconds(const FlowTable& table, const FlowStep& step);

}  // namespace tutti::sim
