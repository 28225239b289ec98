/* Adapters, their ports and events, and what is to go wrong. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake.h"

pthread_mutex_t theLock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t eventTaken = PTHREAD_COND_INITIALIZER;

/* ---- what goes wrong ---- */

static char theOrder[128];
static struct {
  char call[16];
  long count;
} counts[24];
static uint64_t sendsAtOrder;

/* Under the lock. */
static const char* order(void) {
  const char* text = getenv("FAKE_VERBS");
  if (text == NULL) text = "";
  if (strcmp(text, theOrder) != 0) {
    snprintf(theOrder, sizeof theOrder, "%s", text);
    memset(counts, 0, sizeof counts);
    sendsAtOrder = 0;
  }
  return theOrder;
}

int isOrdered(const char* call) {
  char wanted[16] = "";
  long number = 0;
  const int words = sscanf(order(), "fail %15s %ld", wanted, &number);
  if (words < 1 || strcmp(wanted, call) != 0) return 0;
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
    if (counts[i].call[0] == 0) snprintf(counts[i].call, sizeof counts[i].call, "%s", call);
    if (strcmp(counts[i].call, call) == 0) return ++counts[i].count == number || words == 1;
  }
  return 0;
}

/* Sends are counted from the first one that comes after the order. */
static uint64_t sinceOrder(uint64_t send) {
  if (sendsAtOrder == 0) sendsAtOrder = send;
  return send - sendsAtOrder + 1;
}

int isOrderedAt(const char* what, uint64_t send) {
  char wanted[16] = "";
  unsigned long number = 0;
  return sscanf(order(), "%15s %lu", wanted, &number) == 2 && strcmp(wanted, what) == 0 &&
         sinceOrder(send) == number;
}

static int hangs(const char* call) {
  char wanted[16] = "";
  return sscanf(order(), "hang %15s", wanted) == 1 && strcmp(wanted, call) == 0;
}

int failsOrHangs(const char* call) {
  pthread_mutex_lock(&theLock);
  const int is = isOrdered(call);
  const int doesHang = hangs(call);
  pthread_mutex_unlock(&theLock);
  while (doesHang) pause();
  return is;
}

__attribute__((constructor)) static void beLoaded(void) { failsOrHangs("load"); }

int orderedStatus(uint64_t send) {
  unsigned long number = 0;
  int status = 0;
  if (sscanf(order(), "complete %lu %d", &number, &status) != 2) return -1;
  return sinceOrder(send) == number ? status : -1;
}

/* ---- events ---- */

static void raiseEvent(struct Context* context, struct ibv_async_event event) {
  const uint64_t one = 1;
  if (context->eventCount == kMaxEvents) return;
  context->events[context->eventCount++] = event;
  if (write(context->extended.context.async_fd, &one, sizeof one) < 0) abort();
}

static void setPort(struct Context* context, int number, int isUp) {
  portOf(context, number)->attributes.state = isUp ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  raiseEvent(context, (struct ibv_async_event){
                          .element.port_num = number,
                          .event_type = isUp ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR});
}

void raiseOrderedEvent(struct Pair* pair, uint64_t send) {
  unsigned long number = 0;
  char kind[16] = "";
  if (sscanf(order(), "event %lu %15s", &number, kind) != 2 || sinceOrder(send) != number) return;
  struct Context* context = contextOf(pair->pair.context);
  const int port = pair->attributes.port_num;
  struct ibv_async_event event = {.event_type = IBV_EVENT_CLIENT_REREGISTER};
  if (strcmp(kind, "port-error") == 0 || strcmp(kind, "flap") == 0) {
    setPort(context, port, 0);
    if (strcmp(kind, "flap") == 0) setPort(context, port, 1);
    return;
  }
  if (strcmp(kind, "device-fatal") == 0) event.event_type = IBV_EVENT_DEVICE_FATAL;
  if (strcmp(kind, "gone") == 0) context->isGone = 1;
  if (strcmp(kind, "gid-change") == 0) event.event_type = IBV_EVENT_GID_CHANGE;
  if (strcmp(kind, "qp-fatal") == 0) {
    event.event_type = IBV_EVENT_QP_FATAL;
    event.element.qp = &pair->pair;
  }
  if (strcmp(kind, "cq-error") == 0) {
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = pair->pair.send_cq;
  }
  raiseEvent(context, event);
}

void dropEvents(struct Context* context, const void* element) {
  int kept = 0;
  for (int i = 0; i < context->eventCount; ++i) {
    if ((const void*)context->events[i].element.qp != element)
      context->events[kept++] = context->events[i];
  }
  context->eventCount = kept;
}

static unsigned* openEventsOf(struct ibv_async_event* event) {
  if (event->event_type == IBV_EVENT_CQ_ERR) return &((struct Queue*)event->element.cq)->openEvents;
  if (event->event_type == IBV_EVENT_QP_FATAL)
    return &((struct Pair*)event->element.qp)->openEvents;
  return NULL;
}

int ibv_get_async_event(struct ibv_context* base, struct ibv_async_event* event) {
  uint64_t count = 0;
  struct Context* context = contextOf(base);
  if (read(base->async_fd, &count, sizeof count) < 0) return -1;
  pthread_mutex_lock(&theLock);
  if (context->isGone) {
    pthread_mutex_unlock(&theLock);
    errno = EIO;
    return -1;
  }
  const int has = context->eventCount > 0;
  if (has) {
    *event = context->events[0];
    memmove(context->events, context->events + 1,
            (size_t)--context->eventCount * sizeof context->events[0]);
    unsigned* open = openEventsOf(event);
    if (open != NULL) ++*open;
  }
  pthread_mutex_unlock(&theLock);
  if (!has) errno = EAGAIN;
  return has ? 0 : -1;
}

void ibv_ack_async_event(struct ibv_async_event* event) {
  pthread_mutex_lock(&theLock);
  unsigned* open = openEventsOf(event);
  if (open != NULL) --*open;
  pthread_cond_broadcast(&eventTaken);
  pthread_mutex_unlock(&theLock);
}

const char* ibv_event_type_str(enum ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_PORT_ERR: return "port error";
    case IBV_EVENT_PORT_ACTIVE: return "port active";
    case IBV_EVENT_DEVICE_FATAL: return "local catastrophic error";
    case IBV_EVENT_QP_FATAL: return "local work queue catastrophic error";
    case IBV_EVENT_CQ_ERR: return "CQ error";
    case IBV_EVENT_GID_CHANGE: return "GID table change";
    default: return "another event";
  }
}

/* ---- the description ---- */

static int addDevice(struct Device* device, const char* line) {
  char name[64], folder[256], kind[16] = "";
  unsigned mostInline = 0;
  if (sscanf(line, "device %63s %255s %u %15s", name, folder, &mostInline, kind) < 3) return EINVAL;
  snprintf(device->device.name, sizeof device->device.name, "%s", name);
  snprintf(device->device.ibdev_path, sizeof device->device.ibdev_path, "%s", folder);
  device->device.node_type = IBV_NODE_CA;
  device->device.transport_type =
      strcmp(kind, "iwarp") == 0 ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
  device->mostInline = mostInline;
  device->userCount = 1;
  return 0;
}

static int addPort(struct Device* device, const char* line) {
  unsigned number = 0, speed = 0, width = 0, lid = 0;
  char state[16], layer[16];
  if (device == NULL || device->portCount == kMaxPorts ||
      sscanf(line, "port %u %15s %15s %u %u %u", &number, state, layer, &speed, &width, &lid) != 6)
    return EINVAL;
  struct Port* port = &device->ports[device->portCount++];
  port->attributes = (struct ibv_port_attr){
      .state = strcmp(state, "active") == 0 ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
      .max_mtu = IBV_MTU_4096,
      .active_mtu = IBV_MTU_4096,
      .gid_tbl_len = kMaxGids,
      .max_msg_sz = 1u << 30,
      .pkey_tbl_len = 1,
      .lid = (uint16_t)lid,
      .active_width = (uint8_t)width,
      .active_speed = (uint8_t)speed,
      .link_layer = strcmp(layer, "eth") == 0 ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND,
      .flags = strcmp(layer, "eth") == 0 ? IBV_QPF_GRH_REQUIRED : 0};
  for (int i = 0; i < kMaxGids; ++i) port->gids[i].kind = -1;
  return 0;
}

static int addGid(struct Device* device, const char* line) {
  unsigned index = 0;
  char kind[16], address[64];
  if (device == NULL || device->portCount == 0 ||
      sscanf(line, "gid %u %15s %63s", &index, kind, address) != 3 || index >= kMaxGids)
    return EINVAL;
  struct Gid* gid = &device->ports[device->portCount - 1].gids[index];
  gid->kind = strcmp(kind, "v2") == 0   ? IBV_GID_TYPE_ROCE_V2
              : strcmp(kind, "v1") == 0 ? IBV_GID_TYPE_ROCE_V1
                                        : IBV_GID_TYPE_IB;
  return inet_pton(AF_INET6, address, gid->gid.raw) == 1 ? 0 : EINVAL;
}

static int readDevices(FILE* file, struct Device** devices) {
  char line[512];
  int count = 0;
  while (fgets(line, sizeof line, file) != NULL) {
    struct Device* last = count == 0 ? NULL : devices[count - 1];
    int error = 0;
    if (strncmp(line, "device ", 7) == 0 && count < kMaxDevices) {
      devices[count] = calloc(1, sizeof **devices);
      error = addDevice(devices[count++], line);
    } else if (strncmp(line, "port ", 5) == 0) {
      error = addPort(last, line);
    } else if (strncmp(line, "gid ", 4) == 0) {
      error = addGid(last, line);
    }
    if (error != 0) {
      fprintf(stderr, "fake verbs: cannot read: %s", line);
      abort();
    }
  }
  return count;
}

struct ibv_device** ibv_get_device_list(int* count) {
  if (failsOrHangs("list")) {
    errno = ENOSYS;
    return NULL;
  }
  struct Device** devices = calloc(kMaxDevices + 1, sizeof *devices);
  const char* path = getenv("FAKE_VERBS_DEVICES");
  FILE* file = path == NULL ? NULL : fopen(path, "r");
  *count = 0;
  if (file != NULL) {
    *count = readDevices(file, devices);
    fclose(file);
  }
  return (struct ibv_device**)devices;
}

/* As with the real one, devices that were opened outlive the list. */
static void letGo(struct Device* device) {
  pthread_mutex_lock(&theLock);
  const int isLast = --device->userCount == 0;
  pthread_mutex_unlock(&theLock);
  if (isLast) free(device);
}

void ibv_free_device_list(struct ibv_device** list) {
  for (int i = 0; list[i] != NULL; ++i) letGo((struct Device*)list[i]);
  free(list);
}

/* ---- contexts ---- */

struct Context* contextOf(struct ibv_context* context) {
  return (struct Context*)((char*)context - offsetof(struct Context, extended.context));
}

struct Port* portOf(struct Context* context, int number) {
  return number >= 1 && number <= context->device->portCount ? &context->device->ports[number - 1]
                                                             : NULL;
}

static int askPort(struct ibv_context* base, uint8_t number, struct ibv_port_attr* attributes,
                   size_t bytes) {
  const struct Port* port = portOf(contextOf(base), number);
  if (failsOrHangs("port")) return EIO;
  if (port == NULL || bytes != sizeof *attributes) return EINVAL;
  pthread_mutex_lock(&theLock);
  *attributes = port->attributes;
  pthread_mutex_unlock(&theLock);
  return 0;
}

int(ibv_query_port)(struct ibv_context* base, uint8_t number,
                    struct _compat_ibv_port_attr* attributes) {
  return askPort(base, number, (struct ibv_port_attr*)attributes, sizeof(struct ibv_port_attr));
}

struct ibv_context* ibv_open_device(struct ibv_device* device) {
  if (failsOrHangs("open") || useWire() != 0) {
    errno = EACCES;
    return NULL;
  }
  struct Context* context = calloc(1, sizeof *context);
  context->device = (struct Device*)device;
  pthread_mutex_lock(&theLock);
  ++context->device->userCount;
  const int isOld = strcmp(order(), "old") == 0;
  pthread_mutex_unlock(&theLock);
  context->extended.sz = sizeof context->extended;
  context->extended.query_port = isOld ? NULL : askPort;
  struct ibv_context* base = &context->extended.context;
  base->device = device;
  base->abi_compat = __VERBS_ABI_IS_EXTENDED;
  base->ops.poll_cq = pollQueue;
  base->ops.post_send = postSend;
  base->ops.post_recv = postReceive;
  base->async_fd = failsOrHangs("events") ? -1 : eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  return base;
}

int ibv_close_device(struct ibv_context* base) {
  struct Context* context = contextOf(base);
  leaveWire();
  close(base->async_fd);
  letGo(context->device);
  free(context);
  return 0;
}

int ibv_query_device(struct ibv_context* base, struct ibv_device_attr* attributes) {
  if (failsOrHangs("query")) return EIO;
  memset(attributes, 0, sizeof *attributes);
  attributes->phys_port_cnt = (uint8_t)contextOf(base)->device->portCount;
  return 0;
}

int _ibv_query_gid_ex(struct ibv_context* base, uint32_t number, uint32_t index,
                      struct ibv_gid_entry* entry, uint32_t flags, size_t bytes) {
  const struct Port* port = portOf(contextOf(base), (int)number);
  if (port == NULL || flags != 0 || bytes != sizeof *entry) return EINVAL;
  if (index >= kMaxGids || port->gids[index].kind < 0) return ENODATA;
  *entry = (struct ibv_gid_entry){.gid = port->gids[index].gid,
                                  .gid_index = index,
                                  .port_num = number,
                                  .gid_type = (uint32_t)port->gids[index].kind};
  return 0;
}

int ibv_fork_init(void) { return failsOrHangs("fork") ? EINVAL : 0; }
