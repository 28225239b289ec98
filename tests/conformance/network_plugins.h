// The network plug-ins of the tests, as a setting names them.
#pragma once

#include <string>

namespace tutti::conformance {

// The stand-in that speaks this version of the interface.
inline std::string pluginOf(int version) {
  return std::string("NCCL_NET_PLUGIN=" TUTTI_FAKE_NETS "/libnccl-net-fake")
      .append(std::to_string(version))
      .append(".so");
}

}  // namespace tutti::conformance
