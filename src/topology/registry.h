// Where descriptions come from: a file, or this machine. The one door to readers/.
#pragma once

#include <string>

#include "base/status.h"
#include "topology/description.h"

namespace tutti::topology {

struct DiscoverOptions {
  std::string root = "";  // before /sys and /proc: a machine made of files
  // A topology XML or hwloc's in place of /sys and /proc; NVML still tells the GPUs that it leaves
  // bare.
  std::string file = "";
  std::string nvmlLibrary = "libnvidia-ml.so.1";  // "": do not look for GPUs
  uint64_t hostHash = 0;
};

// This machine. What cannot be found out is left out or assumed, with a line in `assumptions`; an
// error where NVML breaks off in the middle, or the file is no machine.
Result<Description> discover(const DiscoverOptions& options = {});

// Of a file that should be XML, as much as XmlDocument::parse takes by default and a byte more, by
// which that refuses a longer one.
Result<std::string> readXmlText(const std::string& path);

// A topology XML (<system>) or hwloc's (<topology>).
Result<Description> readDescription(const std::string& path);

// With the profile's GPUs and NICs; see profile.h.
Result<Description> completeFromFile(const Description& description,
                                     const std::string& profilePath);

// Whether there is such a file, readable or not.
bool isThere(const std::string& path);

Status writeDescription(const Description& description, const std::string& path);

}  // namespace tutti::topology
