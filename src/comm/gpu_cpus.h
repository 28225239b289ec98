// The CPUs that are near a GPU: host memory made by a thread there lies on the GPU's node.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::comm {

// As the kernel tells them of the device at this place ("0000:3B:00.0", as the driver writes it);
// empty where it does not. `root` comes before /sys: a machine made of files.
std::vector<int32_t> cpusNear(std::string_view busId, const std::string& root = "");

}  // namespace tutti::comm
