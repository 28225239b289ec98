// The functions of libfabric.so.1 that are no inline ones of its headers.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tutti::net::ofi {

struct Library {
  decltype(&::fi_getinfo) getInfo = nullptr;
  decltype(&::fi_freeinfo) freeInfo = nullptr;
  decltype(&::fi_dupinfo) duplicateInfo = nullptr;
  decltype(&::fi_fabric) openFabric = nullptr;
  decltype(&::fi_strerror) describe = nullptr;

  // `result` as libfabric returns it: below 0, an error's number.
  Status check(int64_t result, std::string_view call) const;
};

// Never unloaded: its threads live as long as the process. kSystemError: there is none.
Result<Library> loadLibrary(const std::string& name = "libfabric.so.1");

// Owns one of libfabric's objects.
struct Close {
  void operator()(::fid_fabric* object) const { ::fi_close(&object->fid); }
  void operator()(::fid_domain* object) const { ::fi_close(&object->fid); }
  void operator()(::fid_ep* object) const { ::fi_close(&object->fid); }
  void operator()(::fid_cq* object) const { ::fi_close(&object->fid); }
  void operator()(::fid_av* object) const { ::fi_close(&object->fid); }
  void operator()(::fid_mr* object) const { ::fi_close(&object->fid); }
};
template <typename T>
using Owned = std::unique_ptr<T, Close>;

struct FreeInfo {
  decltype(&::fi_freeinfo) free = nullptr;
  void operator()(::fi_info* info) const { free(info); }
};
using Info = std::unique_ptr<::fi_info, FreeInfo>;

}  // namespace tutti::net::ofi
