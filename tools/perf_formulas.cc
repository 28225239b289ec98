#include "tools/perf_formulas.h"

namespace tutti::tools {
namespace {

double busFactor(Operation operation, int rankCount) {
  const double ranks = rankCount;
  switch (operation) {
    case Operation::kAllReduce: return 2 * (ranks - 1) / ranks;
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
    case Operation::kGather:
    case Operation::kScatter: return (ranks - 1) / ranks;
    case Operation::kBroadcast:
    case Operation::kReduce:
    case Operation::kSendRecv: return 1;
  }
  return 1;
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
  return {.algorithm = algorithm, .bus = algorithm * busFactor(operation, rankCount)};
}

}  // namespace tutti::tools
