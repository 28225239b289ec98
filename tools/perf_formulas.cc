#include "tools/perf_formulas.h"

#include "wire/bus_factor.h"

namespace tutti::tools {
namespace {

Collective collectiveOf(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce: return Collective::kAllReduce;
    case Operation::kAllGather: return Collective::kAllGather;
    case Operation::kReduceScatter: return Collective::kReduceScatter;
    case Operation::kBroadcast: return Collective::kBroadcast;
    case Operation::kReduce: return Collective::kReduce;
    case Operation::kAllToAll: return Collective::kAllToAll;
    case Operation::kGather: return Collective::kGather;
    case Operation::kScatter: return Collective::kScatter;
    case Operation::kSendRecv: return Collective::kSend;
  }
  return Collective::kSend;
}

}  // namespace

Shape shapeOf(Operation operation, size_t bytes, size_t elementBytes, int rankCount, int rank) {
  const size_t ranks = static_cast<size_t>(rankCount);
  const size_t whole = bytes / elementBytes;
  const size_t block = whole / ranks;
  const size_t ownOffset = block * static_cast<size_t>(rank);
  Shape shape;
  switch (operation) {
    case Operation::kAllReduce:
    case Operation::kBroadcast:
    case Operation::kReduce:
    case Operation::kSendRecv:
      shape = {.paramCount = whole, .sendCount = whole, .recvCount = whole, .bufferCount = whole};
      break;
    case Operation::kAllGather:
    case Operation::kGather:
      shape = {.paramCount = block, .sendCount = block, .recvCount = block * ranks};
      shape.sendOffset = ownOffset;
      shape.bufferCount = block * ranks;
      break;
    case Operation::kReduceScatter:
    case Operation::kScatter:
      shape = {.paramCount = block, .sendCount = block * ranks, .recvCount = block};
      shape.recvOffset = ownOffset;
      shape.bufferCount = block * ranks;
      break;
    case Operation::kAllToAll:
      shape = {.paramCount = block, .sendCount = block * ranks, .recvCount = block * ranks};
      shape.bufferCount = block * ranks;
      break;
  }
  return shape;
}

Bandwidth bandwidthOf(Operation operation, size_t bytes, int rankCount, double seconds) {
  constexpr double kGiga = 1e9;
  const double algorithm = static_cast<double>(bytes) / kGiga / seconds;
  return {.algorithm = algorithm, .bus = algorithm * busFactor(collectiveOf(operation), rankCount)};
}

}  // namespace tutti::tools
