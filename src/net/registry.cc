#include "net/registry.h"

#include <strings.h>
#include <sys/socket.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "net/fabric_provider.h"
#include "net/foreign_calls.h"
#ifdef TUTTI_OFI
#include "net/ofi/adapters.h"
#include "net/ofi/ofi_fabric.h"
#endif
#include "net/plugin/plugin_fabric.h"
#include "net/plugin/plugin_reduction.h"
#include "net/socket/socket_provider.h"
#ifdef TUTTI_VERBS
#include "net/verbs/verbs_fabric.h"
#endif

namespace tutti::net {
namespace {

bool isSame(const std::string& name, const char* other) {
  return ::strcasecmp(name.c_str(), other) == 0;
}

// The entries of a list; an empty list is one empty entry.
std::vector<std::string> entriesOf(const std::string& list) {
  std::vector<std::string> entries;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    if (end > at || list.empty()) entries.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return entries;
}

// Looks for one fabric after the other, and remembers why it was not to be.
class Finder {
 public:
  explicit Finder(const NetworkOptions& options) : options_(options) {}

  Result<FabricProvider::Found> find() {
    if (isSame(options_.network, "socket")) return sockets(options_.namedBy + "=Socket");
    if (options_.isEncrypted) {
      if (options_.network.empty()) return sockets("TUTTI_SECURE=encrypt: only sockets encrypt");
      return invalidUsage("{}={} does not encrypt, as TUTTI_SECURE=encrypt asks: sockets do",
                          options_.namedBy, options_.network);
    }
    if (std::shared_ptr<Fabric> fabric = tryAll())
      return FabricProvider::Found{.fabric = std::move(fabric), .obstacle = {}};
    if (options_.network.empty()) return sockets(reasons_);
    if (isKnown_) {
      return invalidUsage("{}={}: this network cannot be used: {}", options_.namedBy,
                          options_.network, reasons_);
    }
    note(reasons_, others_);
    return invalidUsage("{}={}: there is no such network{}{} (NCCL_NET_PLUGIN={})",
                        options_.namedBy, options_.network, reasons_.empty() ? "" : ": ", reasons_,
                        options_.plugins);
  }

 private:
  static FabricProvider::Found sockets(std::string why) {
    return {.fabric = nullptr, .obstacle = std::move(why)};
  }

  bool isWanted(const std::string& name) const {
    return options_.network.empty() || isSame(options_.network, name.c_str());
  }

  // Adapters come before sockets, also those that only libfabric drives; its other providers are
  // for who asks for them.
  std::shared_ptr<Fabric> tryAll() {
    for (const std::string& entry : entriesOf(options_.plugins)) {
      if (std::shared_ptr<Fabric> fabric = tryPlugin(entry)) return fabric;
    }
    if (isWanted("IB")) {
      if (std::shared_ptr<Fabric> fabric = tryVerbs()) return fabric;
    }
    if (options_.network.empty()) return tryOfiAdapters();
    return isWanted("ofi") ? tryOfi() : nullptr;
  }

  std::shared_ptr<Fabric> tryPlugin(const std::string& entry) {
    Result<PluginLibrary> library = plugin::load(entry);
    if (!library.ok()) return decline(library.status().message());
    if (!library->exists()) return nullptr;
    if (!isWanted(nameOf(*library)))
      return declineOther(fmt::format("{} is network {}", library->source, nameOf(*library)));
    isKnown_ = !options_.network.empty();
    uint64_t process = 0;
    options_.rng->fill(std::as_writable_bytes(std::span(&process, 1)));
    const ForeignCall call(fmt::format("network plug-in {}", nameOf(*library)), "init");
    Result<std::shared_ptr<Fabric>> fabric =
        shared(fmt::format("plug-in {}", library->source),
               [&] { return plugin::open(*library, process, options_.trafficClass); });
    if (fabric.ok()) return std::move(fabric).value();
    log::warn("{} ({}): it is not used", fabric.status().message(), library->source);
    return decline(fabric.status().message());
  }

  std::shared_ptr<Fabric> tryVerbs() {
    isKnown_ = !options_.network.empty();
    if (options_.verbs.isDisabled) return decline("NCCL_IB_DISABLE=1");
#ifdef TUTTI_VERBS
    const ForeignCall call("libibverbs", "opening InfiniBand");
    Result<std::shared_ptr<Fabric>> fabric =
        shared("IB", [&] { return verbs::open(options_.verbs, *options_.rng); });
    if (fabric.ok()) return std::move(fabric).value();
    if (fabric.status().code() == Code::kInvalidUsage) log::warn("{}", fabric.status().message());
    return decline(fabric.status().message());
#else
    return decline("this build has no InfiniBand: libibverbs's headers were not there");
#endif
  }

#ifdef TUTTI_OFI
  // What only looking at the kernel's files tells: without such adapters, libfabric is not opened.
  std::shared_ptr<Fabric> tryOfiAdapters() {
    for (const ofi::KnownAdapter& adapter : ofi::findAdapters(options_.root)) {
      if (!options_.ofiProvider.empty() && options_.ofiProvider != adapter.provider) {
        decline(fmt::format("{}: TUTTI_OFI_PROVIDER={}", adapter.sign, options_.ofiProvider));
        continue;
      }
      Result<std::shared_ptr<Fabric>> fabric = openOfi(adapter.provider, true);
      if (fabric.ok()) {
        log::info(log::Subsystem::kNet, "libfabric's {} is taken for {}", adapter.provider,
                  adapter.sign);
        return std::move(fabric).value();
      }
      decline(fmt::format("{}: {}", adapter.sign, fabric.status().message()));
    }
    return nullptr;
  }

  std::shared_ptr<Fabric> tryOfi() {
    isKnown_ = true;
    Result<std::shared_ptr<Fabric>> fabric = openOfi(options_.ofiProvider, false);
    if (fabric.ok()) return std::move(fabric).value();
    return decline(fabric.status().message());
  }

  Result<std::shared_ptr<Fabric>> openOfi(const std::string& provider, bool isAdapter) {
    const ForeignCall call("libfabric", "opening a provider");
    return shared(fmt::format("ofi {}", provider), [&] {
      return ofi::open({.provider = provider,
                        .interfaces = options_.interfaces,
                        .family = options_.family,
                        .isAdapter = isAdapter,
                        .library = options_.ofiLibrary,
                        .rng = *options_.rng});
    });
  }
#else
  std::shared_ptr<Fabric> tryOfiAdapters() { return nullptr; }
  std::shared_ptr<Fabric> tryOfi() {
    isKnown_ = true;
    return decline("this build has no libfabric: its headers were not there");
  }
#endif

  Result<std::shared_ptr<Fabric>> shared(const std::string& name, const Fabrics::Open& open) {
    if (options_.fabrics != nullptr) return options_.fabrics->get(name, open);
    TUTTI_TRY_ASSIGN(std::shared_ptr<Fabric> fabric, open());
    return fabric;
  }

  std::nullptr_t decline(std::string_view why) { return note(reasons_, why); }
  // Of another network than the one that is asked for.
  std::nullptr_t declineOther(std::string_view why) { return note(others_, why); }
  static std::nullptr_t note(std::string& list, std::string_view why) {
    if (!list.empty() && !why.empty()) list += "; ";
    list += why;
    return nullptr;
  }

  const NetworkOptions& options_;
  bool isKnown_ = false;  // the network that is asked for is one, if not one that can be used
  std::string reasons_, others_;
};

// Nothing takes the place of a fabric that somebody named.
bool isForced(const NetworkOptions& options) {
  return !options.network.empty() && !isSame(options.network, "socket");
}

int familyOf(const Settings& settings) {
  const std::string& family = settings.text("NCCL_SOCKET_FAMILY");
  return family == "AF_INET" ? AF_INET : family == "AF_INET6" ? AF_INET6 : 0;
}

}  // namespace

NetworkOptions networkOptionsOf(const Settings& settings) {
  return {.interfaces = settings.text("NCCL_SOCKET_IFNAME"),
          .family = familyOf(settings),
          .socketThreads = settings.integer("NCCL_SOCKET_NTHREADS"),
          .socketsPerThread = settings.integer("NCCL_NSOCKS_PERTHREAD"),
          .isEncrypted = settings.text("TUTTI_SECURE") == "encrypt",
          .isChecked = settings.integer("TUTTI_NET_CHECKSUM") != 0,
          .network = settings.text("NCCL_NET"),
          .plugins = settings.text("NCCL_NET_PLUGIN"),
          .ofiProvider = settings.text("TUTTI_OFI_PROVIDER"),
          .verbs = verbsOptions(settings),
          .timeout = std::chrono::milliseconds(settings.integer("TUTTI_TIMEOUT_MS"))};
}

NetworkOptions withWish(NetworkOptions options, const NetworkWish& wish) {
  options.trafficClass = wish.trafficClass;
  if (wish.name.empty()) return options;
  options.network = wish.name;
  options.namedBy = "config.netName";
  return options;
}

Result<NetworkChoice> chooseNetwork(const NetworkOptions& options) {
  TUTTI_TRY_ASSIGN(const std::unique_ptr<CallThread> thread, CallThread::start());
  Awaited<FabricProvider::Found> search;
  search.start(thread.get(), [options] { return Finder(options).find(); });
  thread->waitUntilIdle(options.timeout);
  std::optional<Result<FabricProvider::Found>> found = search.take();
  if (!found && isForced(options)) {
    return invalidUsage("{}={}: this network cannot be used: {}", options.namedBy, options.network,
                        thread->complaint(options.timeout));
  }
  if (!found) return NetworkChoice{.name = "socket", .reason = thread->complaint(options.timeout)};
  if (!found->ok()) return found->takeStatus();
  const FabricProvider::Found& choice = found->value();
  if (choice.fabric == nullptr) return NetworkChoice{.name = "socket", .reason = choice.obstacle};
  const Fabric::Caps& caps = choice.fabric->caps();
  return NetworkChoice{.name = caps.name, .reason = caps.description};
}

std::unique_ptr<Provider> openNetwork(const NetworkOptions& options) {
  return std::make_unique<FabricProvider>(
      FabricProvider::Options{.sockets = std::make_unique<socket::SocketProvider>(options),
                              .find = [options] { return Finder(options).find(); },
                              .isForced = isForced(options),
                              .namedBy = fmt::format("{}={}", options.namedBy, options.network),
                              .trafficClass = options.trafficClass,
                              .segments = options.segments,
                              .timeout = options.timeout,
                              .clock = options.clock});
}

Result<std::unique_ptr<ReductionNetwork>> openReduction(const NetworkOptions& options) {
  std::string reasons;
  if (options.isEncrypted) {
    return Status(Code::kSystemError,
                  "networks that reduce read what they add, and TUTTI_SECURE=encrypt is set");
  }
  for (const std::string& entry : entriesOf(options.plugins)) {
    uint64_t process = 0;
    options.rng->fill(std::as_writable_bytes(std::span(&process, 1)));
    Result<std::unique_ptr<ReductionNetwork>> network = plugin::openReduction(entry, process);
    if (network.ok() && *network != nullptr) return network;
    if (!reasons.empty()) reasons += "; ";
    if (!network.ok()) {
      reasons += network.status().message();
    } else if (entry.empty()) {
      reasons += "NCCL_NET_PLUGIN is not set, and there is no libnccl-net.so";
    } else {
      reasons += fmt::format("NCCL_NET_PLUGIN={} names no plug-in", entry);
    }
  }
  return Status(Code::kSystemError, std::move(reasons));
}

}  // namespace tutti::net
