#include "net/verbs/library.h"

#include <cstring>

#include "base/shared_library.h"

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
  TUTTI_TRY_ASSIGN(SharedLibrary shared, SharedLibrary::open(file, "libibverbs"));
  Library library;
  shared.find(library.getDeviceList, "ibv_get_device_list");
  shared.find(library.freeDeviceList, "ibv_free_device_list");
  shared.find(library.openDevice, "ibv_open_device");
  shared.find(library.closeDevice, "ibv_close_device");
  shared.find(library.queryDevice, "ibv_query_device");
  shared.find(library.queryPort, "ibv_query_port");
  shared.find(library.queryGid, "_ibv_query_gid_ex");
  shared.find(library.allocateDomain, "ibv_alloc_pd");
  shared.find(library.freeDomain, "ibv_dealloc_pd");
  shared.find(library.registerMemory, "ibv_reg_mr");
  shared.find(library.registerRelaxed, "ibv_reg_mr_iova2");
  shared.find(library.deregisterMemory, "ibv_dereg_mr");
  shared.find(library.createQueue, "ibv_create_cq");
  shared.find(library.destroyQueue, "ibv_destroy_cq");
  shared.find(library.createPair, "ibv_create_qp");
  shared.find(library.modifyPair, "ibv_modify_qp");
  shared.find(library.destroyPair, "ibv_destroy_qp");
  shared.find(library.getEvent, "ibv_get_async_event");
  shared.find(library.acknowledgeEvent, "ibv_ack_async_event");
  shared.find(library.eventName, "ibv_event_type_str");
  shared.find(library.statusName, "ibv_wc_status_str");
  shared.find(library.prepareForForks, "ibv_fork_init");
  if (shared.missing() == nullptr) {
    shared.find(library.registerDmaBuffer, "ibv_reg_dmabuf_mr");
    return library;
  }
  return Status(Code::kSystemError, fmt::format("{} has no {}: rdma-core 32 or later is needed",
                                                file, shared.missing()));
}

}  // namespace tutti::net::verbs
