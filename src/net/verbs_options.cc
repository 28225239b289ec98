#include "net/verbs_options.h"

#include <sys/socket.h>

namespace tutti::net {
namespace {

// The table keeps the numbers within the field's range.
template <typename T>
T number(const Settings& settings, std::string_view name) {
  return static_cast<T>(settings.integer(name));
}

std::optional<uint8_t> numberIfSet(const Settings& settings, std::string_view name) {
  if (!settings.get(name).isSet()) return std::nullopt;
  return number<uint8_t>(settings, name);
}

}  // namespace

VerbsOptions verbsOptions(const Settings& settings) {
  const auto isOn = [&](std::string_view name) { return settings.integer(name) != 0; };
  VerbsOptions options;
  options.isDisabled = isOn("NCCL_IB_DISABLE");
  options.adapters = settings.text("NCCL_IB_HCA");
  options.gidIndex = number<int>(settings, "NCCL_IB_GID_INDEX");
  const std::string& family = settings.text("NCCL_IB_ADDR_FAMILY");
  if (!family.empty()) options.addressFamily = family == "AF_INET6" ? AF_INET6 : AF_INET;
  options.addressRange = settings.text("NCCL_IB_ADDR_RANGE");
  options.roceVersion = std::max(0, number<int>(settings, "NCCL_IB_ROCE_VERSION_NUM"));
  options.timeout = number<uint8_t>(settings, "NCCL_IB_TIMEOUT");
  options.retryCount = number<uint8_t>(settings, "NCCL_IB_RETRY_CNT");
  options.partitionKeyIndex = number<uint16_t>(settings, "NCCL_IB_PKEY");
  options.serviceLevel = numberIfSet(settings, "NCCL_IB_SL");
  options.trafficClass = numberIfSet(settings, "NCCL_IB_TC");
  if (settings.integer("NCCL_IB_FIFO_TC") >= 0)
    options.controlTrafficClass = number<uint8_t>(settings, "NCCL_IB_FIFO_TC");
  options.queuePairs = number<uint32_t>(settings, "NCCL_IB_QPS_PER_CONNECTION");
  options.splitsData = isOn("NCCL_IB_SPLIT_DATA_ON_QPS");
  options.usesInline = isOn("NCCL_IB_USE_INLINE");
  options.adaptiveRouting = number<int>(settings, "NCCL_IB_ADAPTIVE_ROUTING");
  options.adaptiveRoutingBytes = number<uint64_t>(settings, "NCCL_IB_AR_THRESHOLD");
  options.ordersRelaxed = isOn("NCCL_IB_PCI_RELAXED_ORDERING");
  options.mergesPorts =
      isOn("NCCL_IB_MERGE_NICS") && settings.text("NCCL_NET_MERGE_LEVEL") != "LOC";
  options.mergesVirtualFunctions = isOn("NCCL_IB_MERGE_VFS");
  options.endsOnEvents = isOn("NCCL_IB_RETURN_ASYNC_EVENTS");
  options.patience = std::chrono::milliseconds(settings.integer("TUTTI_TIMEOUT_MS"));
  return options;
}

Result<PacketMarks> packetMarks(const VerbsOptions& options, int trafficClass) {
  constexpr int kMostServiceLevel = 15;
  constexpr int kMostTrafficClass = 255;
  PacketMarks marks{.serviceLevel = options.serviceLevel.value_or(0),
                    .trafficClass = options.trafficClass.value_or(0)};
  if (trafficClass >= 0) {
    if (trafficClass > kMostTrafficClass) {
      return Status(Code::kInvalidUsage,
                    fmt::format("config.trafficClass is {}: on InfiniBand and RoCE the most is {}",
                                trafficClass, kMostTrafficClass));
    }
    const auto wanted = static_cast<uint8_t>(trafficClass);
    if (!options.trafficClass) marks.trafficClass = wanted;
    if (!options.serviceLevel && wanted <= kMostServiceLevel) marks.serviceLevel = wanted;
  }
  marks.controlTrafficClass = options.controlTrafficClass.value_or(marks.trafficClass);
  return marks;
}

}  // namespace tutti::net
