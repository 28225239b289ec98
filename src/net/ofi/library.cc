#include "net/ofi/library.h"

#include "base/shared_library.h"

namespace tutti::net::ofi {

Status Library::check(int64_t result, std::string_view call) const {
  if (result >= 0) return {};
  return Status(Code::kSystemError, fmt::format("libfabric: {}: {} ({})", call,
                                                describe(static_cast<int>(-result)), -result));
}

Result<Library> loadLibrary(const std::string& name) {
  TUTTI_TRY_ASSIGN(SharedLibrary shared, SharedLibrary::open(name, "libfabric"));
  Library library;
  shared.find(library.getInfo, "fi_getinfo");
  shared.find(library.freeInfo, "fi_freeinfo");
  shared.find(library.duplicateInfo, "fi_dupinfo");
  shared.find(library.openFabric, "fi_fabric");
  shared.find(library.describe, "fi_strerror");
  if (shared.missing() == nullptr) return library;
  return Status(Code::kSystemError, fmt::format("{} has no {}", name, shared.missing()));
}

}  // namespace tutti::net::ofi
