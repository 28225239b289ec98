// NVTX is headers only: the first of its calls loads the tool's library and fills a table of
// functions, which stay inside this library. What a range is about goes as a payload, whose layout
// (schema) is registered by NVTX's extension for payloads; a tool without it gets the ranges alone.
//
// The domain and the labels are those that tools for NCCL's ranges look for.
#include "observe/nvtx/nvtx_ranges.h"

#include <nvtx3/nvToolsExtPayload.h>
#include <sys/auxv.h>

#include <array>
#include <cstddef>
#include <deque>
#include <span>

#include "wire/types.h"

namespace tutti::observe::nvtx {
namespace {

constexpr const char* kDomain = "NCCL";
constexpr size_t kKindCount = static_cast<size_t>(CallKind::kMemory) + 1;

constexpr size_t at(CallKind kind) { return static_cast<size_t>(kind); }

constexpr nvtxPayloadSchemaEntry_t entry(const char* name, uint64_t type, size_t offset) {
  return {.flags = 0,
          .type = type,
          .name = name,
          .description = nullptr,
          .arrayOrUnionDetail = 0,
          .offset = offset,
          .semantics = nullptr,
          .reserved = nullptr};
}

// The enumerations' values by name, as the tool shows them.
struct Enumerations {
  uint64_t types = 0;
  uint64_t ops = 0;
};

uint64_t registerEnumeration(nvtxDomainHandle_t domain, const char* name,
                             std::span<const nvtxPayloadEnum_t> entries) {
  const nvtxPayloadEnumAttr_t attributes{
      .fieldMask = NVTX_PAYLOAD_ENUM_ATTR_FIELD_NAME | NVTX_PAYLOAD_ENUM_ATTR_FIELD_ENTRIES |
                   NVTX_PAYLOAD_ENUM_ATTR_FIELD_NUM_ENTRIES | NVTX_PAYLOAD_ENUM_ATTR_FIELD_SIZE,
      .name = name,
      .entries = entries.data(),
      .numEntries = entries.size(),
      .sizeOfEnum = sizeof(int32_t),
      .schemaId = 0,
      .extension = nullptr};
  return ::nvtxPayloadEnumRegister(domain, &attributes);
}

// Static, as the schemas are kept: a tool may keep the pointers.
Enumerations registerEnumerations(nvtxDomainHandle_t domain) {
  static constexpr std::array<nvtxPayloadEnum_t, 5> kOps{
      {{"Sum", 0, 0}, {"Product", 1, 0}, {"Max", 2, 0}, {"Min", 3, 0}, {"Avg", 4, 0}}};
  static constexpr std::array<nvtxPayloadEnum_t, kDataTypeCount> kTypes{{{"int8", 0, 0},
                                                                         {"uint8", 1, 0},
                                                                         {"int32", 2, 0},
                                                                         {"uint32", 3, 0},
                                                                         {"int64", 4, 0},
                                                                         {"uint64", 5, 0},
                                                                         {"float16", 6, 0},
                                                                         {"float32", 7, 0},
                                                                         {"float64", 8, 0},
                                                                         {"bfloat16", 9, 0},
                                                                         {"float8e4m3", 10, 0},
                                                                         {"float8e5m2", 11, 0}}};
  return {.types = registerEnumeration(domain, "ncclDataType_t", kTypes),
          .ops = registerEnumeration(domain, "ncclRedOp_t", kOps)};
}

// A kind's fields; an enumeration that the tool does not know is a number.
class Schema {
 public:
  Schema(CallKind kind, const Enumerations& enumerations) {
    if (kind == CallKind::kMemory) {
      add("Message size [bytes]", NVTX_PAYLOAD_ENTRY_TYPE_UINT64, offsetof(CallPayload, bytes));
      return;
    }
    add("NCCL communicator ID", NVTX_PAYLOAD_ENTRY_TYPE_UINT64,
        offsetof(CallPayload, communicator));
    add("Rank", NVTX_PAYLOAD_ENTRY_TYPE_INT32, offsetof(CallPayload, rank));
    add("No. of ranks", NVTX_PAYLOAD_ENTRY_TYPE_INT32, offsetof(CallPayload, rankCount));
    add("CUDA device", NVTX_PAYLOAD_ENTRY_TYPE_INT32, offsetof(CallPayload, device));
    if (kind == CallKind::kCommunicator) return;
    add("Message size [bytes]", NVTX_PAYLOAD_ENTRY_TYPE_UINT64, offsetof(CallPayload, bytes));
    add("Count", NVTX_PAYLOAD_ENTRY_TYPE_UINT64, offsetof(CallPayload, count));
    add("Data type", orNumber(enumerations.types), offsetof(CallPayload, type));
    const bool isReduction = kind == CallKind::kReduction || kind == CallKind::kRootedReduction;
    const bool isRooted = kind == CallKind::kRootedMove || kind == CallKind::kRootedReduction;
    if (isReduction)
      add("Reduction operation", orNumber(enumerations.ops), offsetof(CallPayload, op));
    if (isRooted) add("Root", NVTX_PAYLOAD_ENTRY_TYPE_INT32, offsetof(CallPayload, peer));
    if (kind == CallKind::kTransfer)
      add("Peer rank", NVTX_PAYLOAD_ENTRY_TYPE_INT32, offsetof(CallPayload, peer));
  }

  // Its id; 0: the tool takes no payloads.
  uint64_t registerAs(nvtxDomainHandle_t domain, const char* name) const {
    const nvtxPayloadSchemaAttr_t attributes{
        .fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE,
        .name = name,
        .type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC,
        .flags = 0,
        .entries = entries_.data(),
        .numEntries = size_,
        .payloadStaticSize = sizeof(CallPayload),
        .packAlign = 0,
        .schemaId = 0,
        .extension = nullptr};
    return ::nvtxPayloadSchemaRegister(domain, &attributes);
  }

 private:
  static uint64_t orNumber(uint64_t enumeration) {
    return enumeration == 0 ? uint64_t{NVTX_PAYLOAD_ENTRY_TYPE_INT32} : enumeration;
  }
  void add(const char* name, uint64_t type, size_t offset) {
    entries_[size_++] = entry(name, type, offset);
  }

  std::array<nvtxPayloadSchemaEntry_t, 10> entries_{};
  size_t size_ = 0;
};

const char* schemaName(CallKind kind) {
  switch (kind) {
    case CallKind::kPlain: return nullptr;
    case CallKind::kCommunicator: return "tutti communicator call";
    case CallKind::kMove: return "tutti collective";
    case CallKind::kRootedMove: return "tutti rooted collective";
    case CallKind::kReduction: return "tutti reduction";
    case CallKind::kRootedReduction: return "tutti rooted reduction";
    case CallKind::kTransfer: return "tutti transfer";
    case CallKind::kMemory: return "tutti memory";
  }
  return nullptr;
}

class Ranges final : public CallRanges {
 public:
  explicit Ranges(nvtxDomainHandle_t domain) : domain_(domain) {
    const Enumerations enumerations = registerEnumerations(domain);
    for (size_t number = 0; number < kKindCount; ++number) {
      const auto kind = static_cast<CallKind>(number);
      if (schemaName(kind) == nullptr) continue;
      schemaIds_[number] =
          schemas_.emplace_back(kind, enumerations).registerAs(domain, schemaName(kind));
    }
  }

  void begin(const char* function, CallKind kind, const CallPayload& payload) override {
    const nvtxPayloadData_t data{
        .schemaId = schemaIds_[at(kind)], .size = sizeof payload, .payload = &payload};
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = function;
    if (data.schemaId != 0) {
      event.payloadType = NVTX_PAYLOAD_TYPE_EXT;
      event.reserved0 = 1;  // how many payloads
      event.payload.ullValue = reinterpret_cast<uintptr_t>(&data);
    }
    ::nvtxDomainRangePushEx(domain_, &event);
  }

  void end() override { ::nvtxDomainRangePop(domain_); }

 private:
  const nvtxDomainHandle_t domain_;
  std::deque<Schema> schemas_;
  std::array<uint64_t, kKindCount> schemaIds_{};
};

}  // namespace

std::unique_ptr<CallRanges> openRanges() {
  if (::getauxval(AT_SECURE) != 0) return nullptr;
  const nvtxDomainHandle_t domain = ::nvtxDomainCreateA(kDomain);
  if (domain == nullptr) return nullptr;
  return std::make_unique<Ranges>(domain);
}

}  // namespace tutti::observe::nvtx
