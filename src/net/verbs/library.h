// The functions of libibverbs.so.1 that are no inline ones of its headers.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tutti::net::verbs {

struct Library {
  decltype(&::ibv_get_device_list) getDeviceList = nullptr;
  decltype(&::ibv_free_device_list) freeDeviceList = nullptr;
  decltype(&::ibv_open_device) openDevice = nullptr;
  decltype(&::ibv_close_device) closeDevice = nullptr;
  decltype(&::ibv_query_device) queryDevice = nullptr;
  decltype(&::ibv_query_port) queryPort = nullptr;
  decltype(&::_ibv_query_gid_ex) queryGid = nullptr;
  decltype(&::ibv_alloc_pd) allocateDomain = nullptr;
  decltype(&::ibv_dealloc_pd) freeDomain = nullptr;
  decltype(&::ibv_reg_mr) registerMemory = nullptr;
  decltype(&::ibv_reg_mr_iova2) registerRelaxed = nullptr;
  decltype(&::ibv_dereg_mr) deregisterMemory = nullptr;
  decltype(&::ibv_reg_dmabuf_mr) registerDmaBuffer = nullptr;  // null before rdma-core 34
  decltype(&::ibv_create_cq) createQueue = nullptr;
  decltype(&::ibv_destroy_cq) destroyQueue = nullptr;
  decltype(&::ibv_create_qp) createPair = nullptr;
  decltype(&::ibv_modify_qp) modifyPair = nullptr;
  decltype(&::ibv_destroy_qp) destroyPair = nullptr;
  decltype(&::ibv_get_async_event) getEvent = nullptr;
  decltype(&::ibv_ack_async_event) acknowledgeEvent = nullptr;
  decltype(&::ibv_event_type_str) eventName = nullptr;
  decltype(&::ibv_wc_status_str) statusName = nullptr;
  decltype(&::ibv_fork_init) prepareForForks = nullptr;

  // The whole answer, with what older libraries do not know.
  Status askPort(::ibv_context* context, uint8_t port, ::ibv_port_attr& attributes) const;
};

// Never unloaded: its drivers' threads and handlers may live as long as the process. kSystemError,
// not logged: there is none, or it is too old.
Result<Library> loadLibrary(const std::string& file);

// "ibv_create_qp of mlx5_0: Cannot allocate memory (12)". `error`: an errno; 0: none.
Status check(int error, std::string_view call, std::string_view subject);

// Owns one of libibverbs's objects.
template <typename T>
struct Destroy {
  int (*destroy)(T*) = nullptr;
  void operator()(T* object) const { destroy(object); }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy<T>>;

}  // namespace tutti::net::verbs
