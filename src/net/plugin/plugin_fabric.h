// Network plug-ins (NCCL_NET_PLUGIN), versions 6 to 11 of their interface, as a fabric. A plug-in
// is initialised once a process and stays in its memory.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "net/fabric.h"

namespace tutti::net::plugin {

// A plug-in in this process's memory, not initialised yet.
struct Library {
  int version = 0;                  // 6 to 11
  const void* functions = nullptr;  // its struct of that version; null: there is none
  std::string source{};             // the file, or what else it came from
  bool exists() const { return functions != nullptr; }
  std::string name() const;  // the network's, as NCCL_NET gives it
};

// One entry of NCCL_NET_PLUGIN; see base/plugin_file.h. kInvalidUsage where something was asked for
// by name and is not there or has no version we know.
Result<Library> load(const std::string& entry);

// Initialises it and looks at its adapters. An error names the plug-in, the call and what it
// returned. `process`: what versions with a context get as their communicator's id.
Result<std::unique_ptr<Fabric>> open(const Library& library, uint64_t process);

}  // namespace tutti::net::plugin
