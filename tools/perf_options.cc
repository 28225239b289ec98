#include "tools/perf_options.h"

#include <array>
#include <charconv>
#include <limits>
#include <utility>

namespace tutti::tools {
namespace {

constexpr size_t kMaxRows = 100'000;

template <typename T>
struct Named {
  std::string_view text;
  T value;
};

// The first name of a value is the one that is printed.
constexpr std::array kOperations = {
    Named{std::string_view("all_reduce"), Operation::kAllReduce},
    Named{std::string_view("all_gather"), Operation::kAllGather},
    Named{std::string_view("reduce_scatter"), Operation::kReduceScatter},
    Named{std::string_view("broadcast"), Operation::kBroadcast},
    Named{std::string_view("reduce"), Operation::kReduce},
    Named{std::string_view("alltoall"), Operation::kAllToAll},
    Named{std::string_view("gather"), Operation::kGather},
    Named{std::string_view("scatter"), Operation::kScatter},
    Named{std::string_view("sendrecv"), Operation::kSendRecv},
    Named{std::string_view("all_to_all"), Operation::kAllToAll},
};

constexpr std::array kTypes = {
    Named{std::string_view("int8"), DataType::kInt8},
    Named{std::string_view("uint8"), DataType::kUint8},
    Named{std::string_view("int32"), DataType::kInt32},
    Named{std::string_view("uint32"), DataType::kUint32},
    Named{std::string_view("int64"), DataType::kInt64},
    Named{std::string_view("uint64"), DataType::kUint64},
    Named{std::string_view("half"), DataType::kFloat16},
    Named{std::string_view("float"), DataType::kFloat32},
    Named{std::string_view("double"), DataType::kFloat64},
    Named{std::string_view("bfloat16"), DataType::kBfloat16},
    Named{std::string_view("f8e4m3"), DataType::kFloat8E4M3},
    Named{std::string_view("f8e5m2"), DataType::kFloat8E5M2},
    Named{std::string_view("char"), DataType::kInt8},
    Named{std::string_view("int"), DataType::kInt32},
    Named{std::string_view("fp16"), DataType::kFloat16},
    Named{std::string_view("float16"), DataType::kFloat16},
    Named{std::string_view("fp32"), DataType::kFloat32},
    Named{std::string_view("float32"), DataType::kFloat32},
    Named{std::string_view("fp64"), DataType::kFloat64},
    Named{std::string_view("float64"), DataType::kFloat64},
    Named{std::string_view("bf16"), DataType::kBfloat16},
    Named{std::string_view("fp8_e4m3"), DataType::kFloat8E4M3},
    Named{std::string_view("fp8_e5m2"), DataType::kFloat8E5M2},
};

constexpr std::array kOps = {
    Named{std::string_view("sum"), ReduceOp::kSum},
    Named{std::string_view("prod"), ReduceOp::kProd},
    Named{std::string_view("max"), ReduceOp::kMax},
    Named{std::string_view("min"), ReduceOp::kMin},
    Named{std::string_view("avg"), ReduceOp::kAvg},
    Named{std::string_view("mulsum"), ReduceOp::kPreMulSum},
    Named{std::string_view("premulsum"), ReduceOp::kPreMulSum},
};

template <typename Table>
std::string allNames(const Table& table) {
  std::string names;
  for (const auto& entry : table) {
    if (!names.empty()) names += ' ';
    names += entry.text;
  }
  return names;
}

template <typename Table, typename T>
std::string_view firstName(const Table& table, T value) {
  for (const auto& entry : table) {
    if (entry.value == value) return entry.text;
  }
  return "?";
}

template <typename T, typename Table>
Result<T> parseName(const Table& table, std::string_view text, std::string_view what) {
  for (const auto& entry : table) {
    if (entry.text == text) return T(entry.value);
  }
  return invalidArgument("{} '{}' is not one of: {}", what, text, allNames(table));
}

// A comma-separated list of names, or "all": each value once, in the table's order.
template <typename T, typename Table>
Result<std::vector<T>> parseNames(const Table& table, std::string_view text,
                                  std::string_view what) {
  std::vector<T> values;
  if (text == "all") {
    for (const auto& entry : table) {
      if (firstName(table, entry.value) == entry.text) values.push_back(entry.value);
    }
    return values;
  }
  size_t start = 0;
  while (start <= text.size()) {
    const size_t end = std::min(text.find(',', start), text.size());
    TUTTI_TRY_ASSIGN(T value, parseName<T>(table, text.substr(start, end - start), what));
    values.push_back(value);
    start = end + 1;
  }
  return values;
}

}  // namespace

std::string_view name(Operation operation) { return firstName(kOperations, operation); }

std::string_view name(GpuPath path) {
  switch (path) {
    case GpuPath::kUnknown: return "";
    case GpuPath::kDirect: return "from GPU to GPU";
    case GpuPath::kThroughHost: return "through the host";
  }
  return "";
}

bool isReduction(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduceScatter ||
         operation == Operation::kReduce;
}

bool hasRoot(Operation operation) {
  return operation == Operation::kBroadcast || operation == Operation::kReduce ||
         operation == Operation::kGather || operation == Operation::kScatter;
}

std::string_view columnName(DataType type) { return firstName(kTypes, type); }
std::string_view columnName(ReduceOp op) { return firstName(kOps, op); }

Result<std::vector<DataType>> parseTypes(std::string_view text) {
  return parseNames<DataType>(kTypes, text, "type");
}

Result<std::vector<ReduceOp>> parseOps(std::string_view text) {
  return parseNames<ReduceOp>(kOps, text, "reduction");
}

Result<Operation> parseOperation(std::string_view text) {
  constexpr std::string_view kSuffix = "_perf";  // the name of the program in nccl-tests
  if (text.size() > kSuffix.size() && text.ends_with(kSuffix)) text.remove_suffix(kSuffix.size());
  return parseName<Operation>(kOperations, text, "collective");
}

Result<int> parseRoot(std::string_view text) {
  if (text == "all" || text == "-1") return int{kAllRoots};
  int root = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, root);
  if (error != std::errc() || rest != end || root < 0) {
    return invalidArgument("root '{}' is neither a rank nor 'all'", text);
  }
  return int{root};
}

Result<std::vector<size_t>> listSizes(const PerfOptions& options) {
  if (options.maxBytes < options.minBytes) {
    return invalidArgument("the last size (-e {}) is below the first (-b {})", options.maxBytes,
                           options.minBytes);
  }
  if (options.stepFactor == 0 && options.stepBytes == 0) {
    return invalidArgument("a step of 0 bytes (-i) never reaches the last size; give -i or -f");
  }
  std::vector<size_t> sizes;
  for (size_t bytes = options.minBytes; bytes <= options.maxBytes;) {
    if (sizes.size() == kMaxRows) {
      return invalidArgument("more than {} sizes between -b {} and -e {}: take a larger step",
                             kMaxRows, options.minBytes, options.maxBytes);
    }
    sizes.push_back(bytes);
    if (options.stepFactor != 0) {
      const size_t factor = static_cast<size_t>(options.stepFactor);
      bytes = bytes == 0 ? 1 : bytes * factor;
    } else {
      bytes += options.stepBytes;
    }
  }
  return sizes;
}

Status checkOptions(const PerfOptions& options, int rankCount) {
  if (options.stepFactor == 1 || options.stepFactor < 0) {
    return invalidArgument("the step factor (-f {}) must be at least 2", options.stepFactor);
  }
  if (hasRoot(options.operation) && options.root >= rankCount) {
    return invalidArgument("root {} (-r) is not one of the {} ranks", options.root, rankCount);
  }
  Result<std::vector<size_t>> sizes = listSizes(options);
  return sizes.ok() ? Status() : sizes.takeStatus();
}

}  // namespace tutti::tools
