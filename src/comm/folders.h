// Folders that settings name for what the library writes.
#pragma once

#include <string>
#include <string_view>

namespace tutti::comm {

// Logs a warning where nothing can be written there. Said at once, when there is still time to mend
// it; the folder may yet come, so nothing else depends on it. `what`: "bundle".
void warnUnlessWritable(std::string_view setting, std::string_view what, const std::string& folder);

}  // namespace tutti::comm
