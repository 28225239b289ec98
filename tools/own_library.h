// The library of this build or installation, which lies beside the command.
#pragma once

#include <optional>
#include <string>

namespace tutti::tools {

inline constexpr const char* kLibraryName = "libnccl.so.2";

// The folder it lies in: ../lib or its like, as built and as installed; none where it is not there.
std::optional<std::string> ownLibraryFolder();

// Whether the file is this project's library, by the calls of include/tutti/host.h; its code is not
// run.
bool isTuttis(const std::string& path);

// Where /proc is not mounted the loader cannot tell where the command lies, and takes the system's
// library: starts the command anew, with the folder at the end of LD_LIBRARY_PATH. Returns where
// there is nothing to do, or nothing that can be done. `arguments`: main's. One thread.
void insistOnOwnLibrary(char** arguments);

}  // namespace tutti::tools
