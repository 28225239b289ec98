// How fast folds run: bytes written a second, for one shape a name:
//   fold/<type>/<op>/<sources>to<destinations>/<bytes of one vector>
// and, for the processor levels, the shape that matters most. Buffers are touched before timing.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/fold.h"
#include "kernels/kernels.h"

namespace tutti::kernels {
namespace {

struct Shape {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  size_t sources = 2;
  size_t destinations = 1;
  bool post = false;
  bool inPlace = false;
  size_t misalignment = 0;  // bytes past a page
};

class Buffers {
 public:
  Buffers(const Shape& shape, size_t bytes) {
    const size_t owned = shape.sources + shape.destinations;
    memory_.resize(owned);
    for (size_t i = 0; i < owned; ++i) {
      // Not a multiple of a page apart: sources would share cache sets.
      memory_[i].resize(bytes + 8192 + 192 * i);
      auto address = reinterpret_cast<uintptr_t>(memory_[i].data());
      address = (address + 4095) / 4096 * 4096 + 192 * i + shape.misalignment;
      auto* start = reinterpret_cast<std::byte*>(address);
      std::memset(start, 0x31, bytes);  // an ordinary number in every type
      if (i < shape.sources) {
        sources.push_back(start);
      } else {
        destinations.push_back(start);
      }
    }
    if (shape.inPlace) destinations[0] = const_cast<void*>(sources[0]);
  }

  std::vector<const void*> sources;
  std::vector<void*> destinations;

 private:
  std::vector<std::vector<std::byte>> memory_;
};

void runFold(benchmark::State& state, const Shape& shape, const cpu::FoldTable* table) {
  const auto bytes = static_cast<size_t>(state.range(0));
  Buffers buffers(shape, bytes);
  const FoldSpec spec{.type = shape.type, .op = shape.op, .rankCount = 3, .preScale = {}};
  const FoldArgs args{.sources = buffers.sources,
                      .destinations = buffers.destinations,
                      .elementCount = bytes / sizeOf(shape.type),
                      .scaledSource = -1,
                      .post = shape.post};
  for (auto _ : state) {
    if (table != nullptr) {
      cpu::foldWith(*table, spec, args);
    } else {
      fold(spec, args);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

std::string label(const Shape& shape) {
  return fmt::format("fold/{}/{}/{}to{}{}{}{}", name(shape.type), name(shape.op), shape.sources,
                     shape.destinations, shape.post ? "/post" : "", shape.inPlace ? "/inPlace" : "",
                     shape.misalignment != 0 ? fmt::format("/offset{}", shape.misalignment) : "");
}

void add(const Shape& shape, std::initializer_list<int64_t> sizes,
         const cpu::FoldTable* table = nullptr) {
  std::string text = label(shape);
  if (table != nullptr) text += fmt::format("/{}", table->name);
  auto* entry = benchmark::RegisterBenchmark(
      text.c_str(), [shape, table](benchmark::State& state) { runFold(state, shape, table); });
  for (const int64_t size : sizes) entry->Arg(size);
}

bool addAll() {
  add({}, {8, 64, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20});
  add({.inPlace = true}, {1 << 10, 64 << 10, 1 << 20, 64 << 20});
  add({.misalignment = 4}, {1 << 10, 64 << 10, 1 << 20});
  add({.destinations = 2}, {1 << 10, 64 << 10, 1 << 20, 64 << 20});
  for (const size_t sources : {1UL, 3UL, 4UL, 8UL}) {
    add({.sources = sources}, {64, 1 << 10, 64 << 10, 1 << 20});
  }
  add({.op = ReduceOp::kMax}, {64 << 10});
  for (int type = 0; type < kDataTypeCount; ++type) {
    const auto dataType = static_cast<DataType>(type);
    add({.type = dataType}, {64, 64 << 10});
    add({.type = dataType, .op = ReduceOp::kProd}, {64 << 10});
    add({.type = dataType, .op = ReduceOp::kMax}, {64 << 10});
    add({.type = dataType, .op = ReduceOp::kAvg, .post = true}, {64 << 10});
    add({.type = dataType, .sources = 4}, {64 << 10});
  }
  for (const cpu::FoldTable* table : cpu::supportedFoldTables()) {
    for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16,
                                DataType::kFloat8E4M3, DataType::kInt64}) {
      add({.type = type}, {64 << 10}, table);
    }
  }
  return true;
}

[[maybe_unused]] const bool kAdded = addAll();

}  // namespace
}  // namespace tutti::kernels
