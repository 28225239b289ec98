#include "net/verbs/library.h"

#include <dlfcn.h>

#include <cstring>

namespace tutti::net::verbs {

Status check(int error, std::string_view call, std::string_view subject) {
  if (error == 0) return {};
  char text[128] = "";
  return Status(Code::kSystemError, fmt::format("{} of {}: {} ({})", call, subject,
                                                ::strerror_r(error, text, sizeof text), error));
}

Status Library::askPort(::ibv_context* context, uint8_t port, ::ibv_port_attr& attributes) const {
  const std::string name = fmt::format("{}:{}", context->device->name, port);
  ::verbs_context* extended = verbs_get_ctx_op(context, query_port);
  if (extended != nullptr) {
    return check(extended->query_port(context, port, &attributes, sizeof attributes),
                 "ibv_query_port", name);
  }
  return check(queryPort(context, port, reinterpret_cast<::_compat_ibv_port_attr*>(&attributes)),
               "ibv_query_port", name);
}

Result<Library> loadLibrary(const std::string& file) {
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return Status(Code::kSystemError,
                  fmt::format("no libibverbs: {}", reason == nullptr ? "?" : reason));
  }
  Library library;
  const char* missing = nullptr;
  const auto find = [&](auto& member, const char* symbol) {
    void* address = ::dlsym(handle, symbol);
    if (address == nullptr) missing = symbol;
    static_assert(sizeof member == sizeof address);
    std::memcpy(&member, &address, sizeof member);
  };
  find(library.getDeviceList, "ibv_get_device_list");
  find(library.freeDeviceList, "ibv_free_device_list");
  find(library.openDevice, "ibv_open_device");
  find(library.closeDevice, "ibv_close_device");
  find(library.queryDevice, "ibv_query_device");
  find(library.queryPort, "ibv_query_port");
  find(library.queryGid, "_ibv_query_gid_ex");
  find(library.allocateDomain, "ibv_alloc_pd");
  find(library.freeDomain, "ibv_dealloc_pd");
  find(library.registerMemory, "ibv_reg_mr");
  find(library.registerRelaxed, "ibv_reg_mr_iova2");
  find(library.deregisterMemory, "ibv_dereg_mr");
  find(library.createQueue, "ibv_create_cq");
  find(library.destroyQueue, "ibv_destroy_cq");
  find(library.createPair, "ibv_create_qp");
  find(library.modifyPair, "ibv_modify_qp");
  find(library.destroyPair, "ibv_destroy_qp");
  find(library.getEvent, "ibv_get_async_event");
  find(library.acknowledgeEvent, "ibv_ack_async_event");
  find(library.eventName, "ibv_event_type_str");
  find(library.statusName, "ibv_wc_status_str");
  find(library.prepareForForks, "ibv_fork_init");
  if (missing == nullptr) return library;
  return Status(Code::kSystemError,
                fmt::format("{} has no {}: rdma-core 32 or later is needed", file, missing));
}

}  // namespace tutti::net::verbs
