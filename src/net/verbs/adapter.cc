#include "net/verbs/adapter.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::net::verbs {
namespace {

// Of the function that the adapter is, as the kernel links it.
std::string pciAddress(const ::ibv_device& device) {
  const std::string link = fmt::format("{}/device", device.ibdev_path);
  char target[512];
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
  if (length <= 0) return {};
  const std::string_view path(target, static_cast<size_t>(length));
  return std::string(path.substr(path.rfind('/') + 1));
}

bool hasPeerMemory(const VerbsOptions& options) {
  return std::ranges::any_of(options.peerMemoryMarks, [](const std::string& mark) {
    return ::access(mark.c_str(), F_OK) == 0;
  });
}

Gid::Kind kindOf(uint32_t type) {
  if (type == IBV_GID_TYPE_ROCE_V1) return Gid::Kind::kRoceV1;
  if (type == IBV_GID_TYPE_ROCE_V2) return Gid::Kind::kRoceV2;
  return Gid::Kind::kInfiniBand;
}

}  // namespace

Result<std::unique_ptr<Adapter>> Adapter::open(const Library& library, ::ibv_device* device,
                                               const VerbsOptions& options) {
  std::unique_ptr<Adapter> adapter(new Adapter(library, device->name));
  ::ibv_context* context = library.openDevice(device);
  if (context == nullptr) return check(errno, "ibv_open_device", adapter->name_);
  adapter->context_ = Owned<::ibv_context>(context, {library.closeDevice});
  ::ibv_device_attr attributes{};
  TUTTI_TRY(check(library.queryDevice(context, &attributes), "ibv_query_device", adapter->name_));
  ::ibv_pd* domain = library.allocateDomain(context);
  if (domain == nullptr) return check(errno, "ibv_alloc_pd", adapter->name_);
  adapter->domain_ = Owned<::ibv_pd>(domain, {library.freeDomain});
  adapter->registrations_ = std::make_unique<Registrations>(
      Registrations::Options{.library = library,
                             .domain = domain,
                             .adapter = adapter->name_,
                             .isRelaxed = options.ordersRelaxed,
                             .hasPeerMemory = hasPeerMemory(options)});
  adapter->address_ = pciAddress(*device);
  for (uint8_t port = 1; port <= attributes.phys_port_cnt; ++port)
    TUTTI_TRY(adapter->look(options, port));
  return adapter;
}

Status Adapter::look(const VerbsOptions& options, uint8_t number) {
  auto port = std::make_unique<Port>();
  port->name = fmt::format("{}:{}", name_, number);
  port->number = number;
  ::ibv_port_attr attributes{};
  TUTTI_TRY(library_.askPort(context_.get(), number, attributes));
  port->isEthernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  port->needsGlobalRoute = (attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
  port->lid = attributes.lid;
  port->mtu = attributes.active_mtu;
  port->speedGbps = portSpeed(attributes.active_speed, attributes.active_width);
  port->maxMessageBytes = attributes.max_msg_sz;
  if (attributes.state != IBV_PORT_ACTIVE) {
    port->obstacle = fmt::format("{} is down", port->name);
  } else if (Status status = findGid(options, attributes, *port); !status.ok()) {
    port->obstacle = status.message();
  }
  ports_.push_back(std::move(port));
  return {};
}

Status Adapter::findGid(const VerbsOptions& options, const ::ibv_port_attr& attributes,
                        Port& port) {
  std::vector<Gid> table;
  for (uint32_t i = 0; i < static_cast<uint32_t>(attributes.gid_tbl_len); ++i) {
    ::ibv_gid_entry entry{};
    // Holes are errors to libibverbs.
    if (library_.queryGid(context_.get(), port.number, i, &entry, 0, sizeof entry) != 0) continue;
    Gid gid{.index = i, .kind = kindOf(entry.gid_type)};
    std::memcpy(gid.bytes.data(), entry.gid.raw, gid.bytes.size());
    table.push_back(gid);
  }
  if (!port.isEthernet) {
    const auto wanted = static_cast<uint32_t>(std::max(0, options.gidIndex));
    for (const Gid& gid : table)
      if (gid.index == wanted) port.gid = gid;
    return {};
  }
  Result<Gid> chosen = chooseRoceGid(table, {.index = options.gidIndex,
                                             .family = options.addressFamily,
                                             .roceVersion = options.roceVersion,
                                             .range = options.addressRange});
  if (!chosen.ok()) {
    return Status(chosen.status().code(),
                  fmt::format("{}: {}", port.name, chosen.status().message()));
  }
  port.gid = chosen.value();
  return {};
}

void Adapter::fail(std::string why) {
  std::lock_guard lock(mutex_);
  if (hasFailed_.load(std::memory_order_relaxed)) return;
  failure_ = std::move(why);
  hasFailed_.store(true, std::memory_order_release);
}

Status Adapter::trouble() const {
  if (!hasFailed_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  return Status(Code::kSystemError, failure_);
}

}  // namespace tutti::net::verbs
