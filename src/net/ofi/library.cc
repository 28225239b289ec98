#include "net/ofi/library.h"

#include "base/shared_library.h"

namespace tutti::net::ofi {

Status Library::check(int64_t result, std::string_view call) const {
  if (result >= 0) return {};
  return Status(Code::kSystemError, fmt::format("libfabric: {}: {} ({})", call,
                                                describe(static_cast<int>(-result)), -result));
}

Result<Library> loadLibrary() {
  TUTTI_TRY_ASSIGN(SharedLibrary shared, SharedLibrary::open("libfabric.so.1", "libfabric"));
  Library library;
  shared.find(library.getInfo, "fi_getinfo");
  shared.find(library.freeInfo, "fi_freeinfo");
  shared.find(library.duplicateInfo, "fi_dupinfo");
  shared.find(library.openFabric, "fi_fabric");
  shared.find(library.describe, "fi_strerror");
  if (shared.missing() == nullptr) return library;
  return Status(Code::kSystemError, fmt::format("libfabric.so.1 has no {}", shared.missing()));
}

}  // namespace tutti::net::ofi
