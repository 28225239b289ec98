/* A libfabric for tests: the real one, in which the provider shm, which has no internet addresses
 * either, goes by the name that FAKE_FABRIC_PROVIDER says, as if there were such an adapter.
 * FAKE_FABRIC=hang-getinfo: the search for providers never returns. */
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char kReal[] = "shm";

static const char* alias(void) {
  const char* name = getenv("FAKE_FABRIC_PROVIDER");
  return name == NULL ? kReal : name;
}

static void* real(const char* name) {
  static void* library;
  if (library == NULL) library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  return library == NULL ? NULL : dlsym(library, name);
}

static void renameAll(struct fi_info* list, const char* from, const char* to) {
  for (; list != NULL; list = list->next) {
    char** name = &list->fabric_attr->prov_name;
    if (*name == NULL || strcmp(*name, from) != 0) continue;
    free(*name);
    *name = strdup(to);
  }
}

struct fi_info* fi_dupinfo(const struct fi_info* info) {
  struct fi_info* (*call)(const struct fi_info*) = real("fi_dupinfo");
  return call == NULL ? NULL : call(info);
}

void fi_freeinfo(struct fi_info* info) {
  void (*call)(struct fi_info*) = real("fi_freeinfo");
  if (call != NULL) call(info);
}

int fi_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags,
               const struct fi_info* hints, struct fi_info** list) {
  int (*call)(uint32_t, const char*, const char*, uint64_t, const struct fi_info*,
              struct fi_info**) = real("fi_getinfo");
  if (call == NULL) return -FI_ENOSYS;
  const char* order = getenv("FAKE_FABRIC");
  while (order != NULL && strcmp(order, "hang-getinfo") == 0) pause();
  struct fi_info* own = fi_dupinfo(hints);
  renameAll(own, alias(), kReal);
  const int result = call(version, node, service, flags, own, list);
  fi_freeinfo(own);
  if (result == 0) renameAll(*list, kReal, alias());
  return result;
}

int fi_fabric(struct fi_fabric_attr* attributes, struct fid_fabric** fabric, void* context) {
  int (*call)(struct fi_fabric_attr*, struct fid_fabric**, void*) = real("fi_fabric");
  if (call == NULL) return -FI_ENOSYS;
  struct fi_fabric_attr own = *attributes;
  if (strcmp(own.prov_name, alias()) == 0) own.prov_name = (char*)kReal;
  return call(&own, fabric, context);
}

const char* fi_strerror(int error) {
  const char* (*call)(int) = real("fi_strerror");
  return call == NULL ? "no libfabric" : call(error);
}
