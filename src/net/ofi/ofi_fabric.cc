#include "net/ofi/ofi_fabric.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/proc_files.h"
#include "base/settings.h"
#include "bootstrap/interfaces.h"
#include "net/foreign_calls.h"
#include "net/ofi/library.h"
#include "net/ofi/ofi_lane.h"

namespace tutti::net::ofi {
namespace {

// A lane handle's bytes.
struct Layout {
  uint64_t tag = 0;
  uint32_t addressBytes = 0;
  uint32_t zero = 0;
  std::array<std::byte, 112> address{};
};
static_assert(sizeof(Layout) <= sizeof(LaneHandle));

// libfabric's messages over TCP (its ofi_rxm) come into pools of 1024 buffers, two to four pools an
// endpoint, cleared when the endpoint opens; 16 KiB each unless told. Over TCP they need not be as
// long as the messages they are for: with 1 KiB all-reduces and ping-pongs of 8 B to 64 KiB take as
// long, and a rank with three peers has 230 MB instead of 1740 (libfabric 1.17, 2026-11-23). Over
// verbs they must be. What the user has set stands.
void keepBuffersSmall(const std::string& provider) {
  const bool hasAdapters = !namesIn("/sys/class/infiniband").empty();
  if (provider.empty() ? hasAdapters : provider != "tcp") return;
  presetEnvironmentVariable("FI_OFI_RXM_BUFFER_SIZE", "1024");
  presetEnvironmentVariable("FI_OFI_RXM_EAGER_LIMIT", "16384");
}

class OfiListener final : public LaneListener {
 public:
  explicit OfiListener(std::unique_ptr<OfiLane> lane) : lane_(std::move(lane)) {}
  Status prepare(uint64_t tag) {
    Layout layout{.tag = tag};
    TUTTI_TRY_ASSIGN(const size_t bytes, lane_->address(layout.address));
    layout.addressBytes = static_cast<uint32_t>(bytes);
    std::memcpy(handle_.data(), &layout, sizeof layout);
    return {};
  }
  const LaneHandle& handle() const override { return handle_; }
  Result<std::unique_ptr<Lane>> accept() override {
    TUTTI_TRY_ASSIGN(const bool hasMet, lane_->greet());
    return hasMet ? std::unique_ptr<Lane>(std::move(lane_)) : std::unique_ptr<Lane>();
  }

 private:
  std::unique_ptr<OfiLane> lane_;
  LaneHandle handle_{};
};

class OfiDialer final : public LaneDialer {
 public:
  explicit OfiDialer(std::unique_ptr<OfiLane> lane) : lane_(std::move(lane)) {}
  Result<std::unique_ptr<Lane>> connect() override {
    TUTTI_TRY_ASSIGN(const bool hasMet, lane_->greet());
    return hasMet ? std::unique_ptr<Lane>(std::move(lane_)) : std::unique_ptr<Lane>();
  }

 private:
  std::unique_ptr<OfiLane> lane_;
};

class OfiFabric final : public Fabric {
 public:
  OfiFabric(const Library& library, Rng& rng) : library_(library), rng_(rng) {}

  Status open(const Options& options) {
    keepBuffersSmall(options.provider);
    TUTTI_TRY_ASSIGN(const Info found, ask(options));
    std::vector<const ::fi_info*> candidates;
    for (const ::fi_info* info = found.get(); info != nullptr; info = info->next)
      candidates.push_back(info);
    TUTTI_TRY_ASSIGN(const auto admitted, admit(candidates, options));
    caps_.name = "ofi";
    caps_.library = "libfabric";
    caps_.registersMemory = false;
    caps_.returnsAtOnce = true;
    caps_.description = fmt::format("libfabric's {}", admitted.front()->fabric_attr->prov_name);
    for (const ::fi_info* info : admitted) TUTTI_TRY(add(*info));
    caps_.deviceCount = devices_.size();
    return {};
  }

  const Caps& caps() const override { return caps_; }

  Result<std::unique_ptr<LaneListener>> listen(const LanePlace& place) override {
    const ForeignCall call("libfabric", "opening an endpoint");
    uint64_t tag = 0;
    rng_.fill(std::as_writable_bytes(std::span(&tag, 1)));
    tag &= tagMask_;
    TUTTI_TRY_ASSIGN(auto lane, OfiLane::open(library_, *devices_[place.device], tag));
    auto listener = std::make_unique<OfiListener>(std::move(lane));
    TUTTI_TRY(listener->prepare(tag));
    return std::unique_ptr<LaneListener>(std::move(listener));
  }

  Result<std::unique_ptr<LaneDialer>> dial(const LanePlace& place,
                                           const LaneHandle& handle) override {
    const ForeignCall call("libfabric", "opening an endpoint");
    Layout layout;
    std::memcpy(&layout, handle.data(), sizeof layout);
    if (layout.addressBytes == 0 || layout.addressBytes > layout.address.size()) {
      return Status(Code::kRemoteError,
                    fmt::format("an address of {} bytes for libfabric", layout.addressBytes));
    }
    TUTTI_TRY_ASSIGN(auto lane, OfiLane::open(library_, *devices_[place.device], layout.tag));
    TUTTI_TRY(lane->aimAt(layout.address));
    return std::unique_ptr<LaneDialer>(std::make_unique<OfiDialer>(std::move(lane)));
  }

 private:
  Result<Info> ask(const Options& options) {
    const Info hints(library_.duplicateInfo(nullptr), {library_.freeInfo});
    if (!hints) return Status::outOfMemory();
    hints->caps = FI_TAGGED | FI_SEND | FI_RECV;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    if (!options.provider.empty())
      hints->fabric_attr->prov_name = ::strdup(options.provider.c_str());  // the hints' to free
    ::fi_info* list = nullptr;
    const int result = library_.getInfo(FI_VERSION(1, 15), nullptr, nullptr, 0, hints.get(), &list);
    if (result == 0) return Info(list, {library_.freeInfo});
    return library_.check(result,
                          fmt::format("no provider{}{} for messages between hosts "
                                      "(TUTTI_OFI_PROVIDER, FI_PROVIDER): fi_getinfo",
                                      options.provider.empty() ? "" : " ", options.provider));
  }

  // Of the first candidate's provider, one a domain; with internet addresses, those that sockets
  // would use: the best interface, or all that were named.
  static Result<std::vector<const ::fi_info*>> admit(
      const std::vector<const ::fi_info*>& candidates, const Options& options) {
    TUTTI_TRY_ASSIGN(
        const bootstrap::InterfaceChoice choice,
        bootstrap::chooseInterfaces({.names = options.interfaces, .family = options.family}));
    auto interfaces = choice.interfaces;
    if (options.interfaces.empty()) interfaces.resize(1);
    std::vector<const ::fi_info*> admitted;
    for (const ::fi_info* info : candidates) {
      const std::string_view provider = info->fabric_attr->prov_name;
      if (options.provider.empty() && provider.starts_with("shm")) continue;
      if (options.isAdapter && (provider != options.provider || isInternet(*info))) continue;
      if (!admitted.empty() && provider != admitted.front()->fabric_attr->prov_name) continue;
      if (!isReachable(*info, interfaces)) continue;
      const std::string_view domain = info->domain_attr->name;
      if (std::ranges::none_of(admitted, [domain](const ::fi_info* other) {
            return domain == other->domain_attr->name;
          })) {
        admitted.push_back(info);
      }
    }
    if (!admitted.empty()) return admitted;
    return Status(Code::kSystemError,
                  fmt::format("libfabric has no provider on the interface: {}", choice.reason));
  }

  static bool isInternet(const ::fi_info& info) {
    return info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN ||
           info.addr_format == FI_SOCKADDR_IN6;
  }

  static bool isReachable(const ::fi_info& info,
                          const std::vector<bootstrap::Interface>& interfaces) {
    if (!isInternet(info) || info.src_addr == nullptr) return !isInternet(info);
    const bootstrap::SocketAddress own(static_cast<const sockaddr*>(info.src_addr));
    return std::ranges::any_of(interfaces, [&own](const bootstrap::Interface& each) {
      return each.address.isSameHost(own);
    });
  }

  Status add(const ::fi_info& info) {
    auto device = std::make_unique<Device>();
    device->info = Info(library_.duplicateInfo(&info), {library_.freeInfo});
    if (!device->info) return Status::outOfMemory();
    ::fid_fabric* fabric = nullptr;
    TUTTI_TRY(library_.check(library_.openFabric(device->info->fabric_attr, &fabric, nullptr),
                             "fi_fabric"));
    device->fabric.reset(fabric);
    ::fid_domain* domain = nullptr;
    TUTTI_TRY(
        library_.check(::fi_domain(fabric, device->info.get(), &domain, nullptr), "fi_domain"));
    device->domain.reset(domain);
    device->registersMemory = (info.domain_attr->mr_mode & FI_MR_LOCAL) != 0;
    caps_.registersMemory = caps_.registersMemory || device->registersMemory;
    caps_.maxMessageBytes = std::min(caps_.maxMessageBytes, info.ep_attr->max_msg_size);
    // The highest bit that a tag may have.
    tagMask_ &= ~uint64_t{0} >> std::countl_zero(info.ep_attr->mem_tag_format | 1);
    caps_.description +=
        fmt::format("{} {}", devices_.empty() ? " on" : ",", info.domain_attr->name);
    devices_.push_back(std::move(device));
    return {};
  }

  const Library library_;
  Rng& rng_;
  Caps caps_;
  uint64_t tagMask_ = ~uint64_t{0};
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace

Result<std::unique_ptr<Fabric>> open(const Options& options) {
  TUTTI_TRY_ASSIGN(const Library library, loadLibrary(options.library));
  auto fabric = std::make_unique<OfiFabric>(library, options.rng);
  TUTTI_TRY(fabric->open(options));
  return std::unique_ptr<Fabric>(std::move(fabric));
}

}  // namespace tutti::net::ofi
