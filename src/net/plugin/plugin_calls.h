// What the adaptations of the two interfaces share, for one file may have both: the network's
// and the collective network's. Included by them only.
#pragma once

#include <nccl.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/plugin_file.h"
#include "base/status.h"
#include "net/foreign_calls.h"
#include "net/plugin/net_abi.h"
#include "net/plugin/plugin_fabric.h"

namespace tutti::net::plugin {

inline constexpr char kFileKind[] = "net";  // libnccl-net.so, libnccl-net-NAME.so

// Says of calls that fail which plug-in's they were: "network plug-in Fake: init returned 2".
class CallCheck {
 public:
  CallCheck(std::string_view kind, const PluginLibrary& library)
      : subject_(fmt::format("{} {}", kind, nameOf(library))) {}

  Status failure(std::string_view what) const {
    return Status(Code::kSystemError, fmt::format("{}: {}", subject_, what));
  }
  Status check(ncclResult_t result, std::string_view call) const {
    if (result == ncclSuccess) return {};
    return failure(fmt::format("{} returned {}", call, static_cast<int>(result)));
  }
  const std::string& subject() const { return subject_; }
  // Of calls that release something: nobody can do anything about it.
  void tell(ncclResult_t result, std::string_view call) const {
    if (Status status = check(result, call); !status.ok())
      log::info(log::Subsystem::kNet, "{}", status.message());
  }

 private:
  std::string subject_;
};

// Those that can use memory of the host and are driven by it.
struct Adapters {
  std::vector<int> numbers;  // the plug-in's
  std::string description;   // ": mlx5_0 (200000 Mb/s), ..."
};

// Looks at all that a plug-in of this version has; `note(properties)` of those that are taken.
template <int kVersion, typename Calls, typename Note>
Result<Adapters> findAdapters(const Calls& calls, Note&& note) {
  int count = 0;
  const ForeignCall call(calls.subject(), "listing its devices");
  TUTTI_TRY(calls.check(calls.net.devices(&count), "devices"));
  Adapters found;
  for (int device = 0; device < count; ++device) {
    typename abi::Types<kVersion>::Properties properties{};
    TUTTI_TRY(calls.check(calls.net.getProperties(device, &properties), "getProperties"));
    if (!note(properties)) continue;
    found.description +=
        fmt::format("{} {} ({} Mb/s)", found.numbers.empty() ? ":" : ",",
                    properties.name != nullptr ? properties.name : "?", properties.speedMbps);
    found.numbers.push_back(device);
  }
  if (!found.numbers.empty()) return found;
  return calls.failure(
      fmt::format("it has no adapter for memory of the host ({} adapters)", count));
}

// use.operator()<kVersion>() for the version that was found.
template <typename Use>
auto forVersion(int version, Use&& use) {
  switch (version) {
    case 6: return use.template operator()<6>();
    case 7: return use.template operator()<7>();
    case 8: return use.template operator()<8>();
    case 9: return use.template operator()<9>();
    case 10: return use.template operator()<10>();
    default: return use.template operator()<11>();
  }
}

}  // namespace tutti::net::plugin
