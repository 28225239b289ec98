/* Memory, queue pairs and completions. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

struct Pair* thePairs;
struct Region* theRegions;
static uint32_t nextKey = 100;
static uint64_t sendCount;

static int fails(const char* call) {
  const int is = failsOrHangs(call);
  if (is) errno = ENOMEM;
  return is;
}

/* ---- memory ---- */

struct ibv_pd* ibv_alloc_pd(struct ibv_context* context) {
  if (fails("pd")) return NULL;
  struct ibv_pd* domain = calloc(1, sizeof *domain);
  domain->context = context;
  return domain;
}

int ibv_dealloc_pd(struct ibv_pd* domain) {
  for (struct Region* each = theRegions; each != NULL; each = each->next)
    if (each->region.pd == domain) return EBUSY;
  free(domain);
  return 0;
}

static struct ibv_mr* enroll(struct ibv_pd* domain, void* data, size_t bytes, int access) {
  if (fails("reg")) return NULL;
  if (fails("limit")) {
    errno = EFAULT;
    return NULL;
  }
  struct Region* region = calloc(1, sizeof *region);
  pthread_mutex_lock(&theLock);
  nextKey += 3;
  region->region = (struct ibv_mr){.context = domain->context,
                                   .pd = domain,
                                   .addr = data,
                                   .length = bytes,
                                   .lkey = nextKey,
                                   .rkey = nextKey + 1};
  region->access = access;
  region->next = theRegions;
  theRegions = region;
  pthread_mutex_unlock(&theLock);
  return &region->region;
}

struct ibv_mr*(ibv_reg_mr)(struct ibv_pd* domain, void* data, size_t bytes, int access) {
  return enroll(domain, data, bytes, access);
}

struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* domain, void* data, size_t bytes, uint64_t address,
                                unsigned access) {
  if (address != (uint64_t)(uintptr_t)data) {
    errno = EINVAL;
    return NULL;
  }
  return enroll(domain, data, bytes, (int)access);
}

struct ibv_mr* ibv_reg_dmabuf_mr(struct ibv_pd* domain, uint64_t offset, size_t bytes,
                                 uint64_t address, int fd, int access) {
  const char* order = getenv("FAKE_VERBS");
  errno = EOPNOTSUPP;
  if (order != NULL && strcmp(order, "without dmabuf") == 0) return NULL;
  errno = EBADF;
  if (fd < 0 || fails("dmabuf")) return NULL;
  char* mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
  if (mapped == MAP_FAILED) return NULL;
  struct ibv_mr* region = enroll(domain, (void*)(uintptr_t)address, bytes, access);
  if (region != NULL) ((struct Region*)region)->mapped = mapped;
  return region;
}

int ibv_dereg_mr(struct ibv_mr* region) {
  pthread_mutex_lock(&theLock);
  struct Region** place = &theRegions;
  while (&(*place)->region != region) place = &(*place)->next;
  *place = (*place)->next;
  pthread_mutex_unlock(&theLock);
  struct Region* known = (struct Region*)region;
  showWrites(known);
  if (known->mapped != NULL) munmap(known->mapped, region->length);
  free(region);
  return 0;
}

/* What was written to a GPU's memory is there. */
void showWrites(struct Region* region) {
  while (region->firstLate != NULL) {
    struct Late* late = region->firstLate;
    region->firstLate = late->next;
    memcpy(late->target, late->bytes, late->count);
    free(late->bytes);
    free(late);
  }
}

void writeLate(struct Region* region, uint64_t address, const char* bytes, size_t count) {
  struct Late* late = calloc(1, sizeof *late);
  late->target = region->mapped + (address - (uint64_t)(uintptr_t)region->region.addr);
  late->bytes = malloc(count);
  late->count = count;
  memcpy(late->bytes, bytes, count);
  if (region->firstLate == NULL) {
    region->firstLate = late;
  } else {
    region->lastLate->next = late;
  }
  region->lastLate = late;
}

/* By either key: each region has two numbers of its own. */
struct Region* findRegion(const struct ibv_pd* domain, uint32_t key, uint64_t address,
                          uint64_t bytes) {
  for (struct Region* each = theRegions; each != NULL; each = each->next) {
    const uint64_t begin = (uint64_t)(uintptr_t)each->region.addr;
    if (each->region.pd != domain || (each->region.lkey != key && each->region.rkey != key))
      continue;
    return address >= begin && address + bytes <= begin + each->region.length ? each : NULL;
  }
  return NULL;
}

/* ---- completion queues ---- */

struct ibv_cq* ibv_create_cq(struct ibv_context* context, int entries, void* cqContext,
                             struct ibv_comp_channel* channel, int vector) {
  (void)vector;
  if (fails("cq") || channel != NULL || entries < 1) return NULL;
  struct Queue* queue = calloc(1, sizeof *queue);
  queue->queue = (struct ibv_cq){.context = context, .cq_context = cqContext, .cqe = entries};
  queue->size = (unsigned)entries;
  queue->entries = calloc(queue->size, sizeof *queue->entries);
  return &queue->queue;
}

int ibv_destroy_cq(struct ibv_cq* cq) {
  struct Queue* queue = (struct Queue*)cq;
  pthread_mutex_lock(&theLock);
  dropEvents(contextOf(cq->context), cq);
  while (queue->openEvents != 0) pthread_cond_wait(&eventTaken, &theLock);
  pthread_mutex_unlock(&theLock);
  free(queue->entries);
  free(queue);
  return 0;
}

void complete(struct ibv_cq* cq, const struct ibv_wc* entry) {
  struct Queue* queue = (struct Queue*)cq;
  if (queue->count == queue->size) {
    fprintf(stderr, "fake verbs: a completion queue of %u overflows\n", queue->size);
    abort();
  }
  queue->entries[(queue->begin + queue->count++) % queue->size] = *entry;
}

int pollQueue(struct ibv_cq* cq, int most, struct ibv_wc* entries) {
  struct Queue* queue = (struct Queue*)cq;
  int count = 0;
  pthread_mutex_lock(&theLock);
  if (isOrdered("poll")) {
    pthread_mutex_unlock(&theLock);
    return -1;
  }
  for (; count < most && queue->count > 0; --queue->count) {
    entries[count++] = queue->entries[queue->begin];
    queue->begin = (queue->begin + 1) % queue->size;
  }
  pthread_mutex_unlock(&theLock);
  return count;
}

const char* ibv_wc_status_str(enum ibv_wc_status status) {
  switch (status) {
    case IBV_WC_LOC_PROT_ERR: return "local protection error";
    case IBV_WC_WR_FLUSH_ERR: return "Work Request Flushed Error";
    case IBV_WC_REM_ACCESS_ERR: return "remote access error";
    case IBV_WC_RETRY_EXC_ERR: return "transport retry counter exceeded";
    case IBV_WC_RNR_RETRY_EXC_ERR: return "RNR retry counter exceeded";
    default: return "another status";
  }
}

/* ---- queue pairs ---- */

struct ibv_qp* ibv_create_qp(struct ibv_pd* domain, struct ibv_qp_init_attr* attributes) {
  const struct Device* device = contextOf(domain->context)->device;
  if (fails("qp")) return NULL;
  if (attributes->cap.max_inline_data > device->mostInline ||
      attributes->cap.max_inline_data > kInlineBytes || attributes->qp_type != IBV_QPT_RC) {
    errno = EINVAL;
    return NULL;
  }
  struct Pair* pair = calloc(1, sizeof *pair);
  pair->pair = (struct ibv_qp){.context = domain->context,
                               .qp_context = attributes->qp_context,
                               .pd = domain,
                               .send_cq = attributes->send_cq,
                               .recv_cq = attributes->recv_cq,
                               .state = IBV_QPS_RESET,
                               .qp_type = IBV_QPT_RC};
  pair->cap = attributes->cap;
  pair->sends = calloc(pair->cap.max_send_wr, sizeof *pair->sends);
  pair->receives = calloc(pair->cap.max_recv_wr, sizeof *pair->receives);
  if (openSocket(pair) != 0) {
    free(pair->sends);
    free(pair->receives);
    free(pair);
    return NULL;
  }
  pthread_mutex_lock(&theLock);
  pair->next = thePairs;
  thePairs = pair;
  pthread_mutex_unlock(&theLock);
  wakeWire();
  return &pair->pair;
}

int ibv_destroy_qp(struct ibv_qp* qp) {
  struct Pair* pair = (struct Pair*)qp;
  pthread_mutex_lock(&theLock);
  struct Pair** place = &thePairs;
  while (*place != pair) place = &(*place)->next;
  *place = pair->next;
  dropEvents(contextOf(qp->context), qp);
  while (pair->openEvents != 0) pthread_cond_wait(&eventTaken, &theLock);
  pthread_mutex_unlock(&theLock);
  close(pair->fd);
  free(pair->sends);
  free(pair->receives);
  free(pair);
  return 0;
}

/* The changes that a reliable connection goes through, in their order, with what each needs. */
static int mayBecome(const struct Pair* pair, const struct ibv_qp_attr* attributes, int mask) {
  const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  const int ready = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  const int send = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  struct Context* context = contextOf(pair->pair.context);
  const struct Port* port = portOf(context, pair->attributes.port_num);
  switch (attributes->qp_state) {
    case IBV_QPS_INIT:
      port = portOf(context, attributes->port_num);
      return pair->pair.state == IBV_QPS_RESET && mask == init && port != NULL &&
             attributes->pkey_index < port->attributes.pkey_tbl_len;
    case IBV_QPS_RTR:
      if (pair->pair.state != IBV_QPS_INIT || mask != ready ||
          attributes->ah_attr.port_num != pair->attributes.port_num)
        return 0;
      if (!attributes->ah_attr.is_global)
        return attributes->ah_attr.dlid != 0 &&
               port->attributes.link_layer == IBV_LINK_LAYER_INFINIBAND;
      return attributes->ah_attr.grh.sgid_index < kMaxGids &&
             port->gids[attributes->ah_attr.grh.sgid_index].kind >= 0;
    case IBV_QPS_RTS: return pair->pair.state == IBV_QPS_RTR && mask == send;
    default: return 0;
  }
}

/* FAKE_VERBS_REPORT names a file for what packets of each pair carry: service level, traffic
 * class. */
static void reportMarks(const struct ibv_ah_attr* address) {
  const char* report = getenv("FAKE_VERBS_REPORT");
  FILE* file = report == NULL ? NULL : fopen(report, "a");
  if (file == NULL) return;
  fprintf(file, "%d %d\n", address->sl, address->grh.traffic_class);
  fclose(file);
}

int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* attributes, int mask) {
  struct Pair* pair = (struct Pair*)qp;
  if (attributes->qp_state == IBV_QPS_RTR && fails("rtr")) return EINVAL;
  if (attributes->qp_state == IBV_QPS_RTS && fails("rts")) return EINVAL;
  pthread_mutex_lock(&theLock);
  const int may = mayBecome(pair, attributes, mask);
  if (may) {
    qp->state = attributes->qp_state;
    if (qp->state == IBV_QPS_INIT) pair->attributes.port_num = attributes->port_num;
    if (qp->state == IBV_QPS_RTR) {
      pair->attributes.ah_attr = attributes->ah_attr;
      reportMarks(&attributes->ah_attr);
      pair->attributes.dest_qp_num = attributes->dest_qp_num;
      pair->attributes.rq_psn = attributes->rq_psn;
      aimAtPeer(pair);
    }
    if (qp->state == IBV_QPS_RTS) pair->attributes.sq_psn = attributes->sq_psn;
  }
  pthread_mutex_unlock(&theLock);
  return may ? 0 : EINVAL;
}

/* ---- requests ---- */

/* Of a piece: more bytes than it has; of what is inline: another last word. */
static void tellLies(struct Send* send) {
  send->request.imm_data = htonl(0x7fffffff);
  const size_t end = send->place.length;
  if ((send->request.send_flags & IBV_SEND_INLINE) != 0 && end >= sizeof(uint64_t))
    send->inlineData[end - sizeof(uint64_t)] ^= 0x40;
}

static int keepSend(struct Pair* pair, const struct ibv_send_wr* request) {
  if (pair->endSend - pair->firstSend == pair->cap.max_send_wr) return ENOMEM;
  if (request->num_sge > 1) return EINVAL;
  struct Send* send = &pair->sends[pair->endSend % pair->cap.max_send_wr];
  memset(send, 0, sizeof *send);
  send->request = *request;
  if (request->num_sge == 1) send->place = request->sg_list[0];
  if ((request->send_flags & IBV_SEND_INLINE) != 0) {
    if (send->place.length > pair->cap.max_inline_data) return EINVAL;
    if (send->place.length > 0)
      memcpy(send->inlineData, (const void*)(uintptr_t)send->place.addr, send->place.length);
  }
  send->forcedStatus = orderedStatus(++sendCount);
  send->isTwice = isOrderedAt("twice", sendCount);
  if (isOrderedAt("lie", sendCount)) tellLies(send);
  raiseOrderedEvent(pair, sendCount);
  ++pair->endSend;
  return 0;
}

int postSend(struct ibv_qp* qp, struct ibv_send_wr* requests, struct ibv_send_wr** refused) {
  struct Pair* pair = (struct Pair*)qp;
  pthread_mutex_lock(&theLock);
  int error = qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_ERR ? 0 : EINVAL;
  for (; error == 0 && requests != NULL; requests = requests->next) {
    error = isOrdered("send") ? EINVAL : keepSend(pair, requests);
    if (error != 0) break;
  }
  if (error != 0) *refused = requests;
  if (qp->state == IBV_QPS_ERR) failPair(pair, IBV_WC_WR_FLUSH_ERR);
  pthread_mutex_unlock(&theLock);
  wakeWire();
  return error;
}

int postReceive(struct ibv_qp* qp, struct ibv_recv_wr* requests, struct ibv_recv_wr** refused) {
  struct Pair* pair = (struct Pair*)qp;
  pthread_mutex_lock(&theLock);
  int error = qp->state == IBV_QPS_RESET ? EINVAL : 0;
  for (; error == 0 && requests != NULL; requests = requests->next) {
    if (isOrdered("recv") || pair->endReceive - pair->firstReceive == pair->cap.max_recv_wr) {
      error = ENOMEM;
      break;
    }
    pair->receives[pair->endReceive++ % pair->cap.max_recv_wr] = requests->wr_id;
  }
  if (error != 0) *refused = requests;
  if (qp->state == IBV_QPS_ERR) failPair(pair, IBV_WC_WR_FLUSH_ERR);
  pthread_mutex_unlock(&theLock);
  return error;
}

/* The peer has taken all sends before `end`. */
void completeSends(struct Pair* pair, uint64_t end) {
  for (; pair->firstSend < end; ++pair->firstSend) {
    const struct Send* send = &pair->sends[pair->firstSend % pair->cap.max_send_wr];
    if ((send->request.send_flags & IBV_SEND_SIGNALED) == 0) continue;
    for (int i = 0; i <= send->isTwice; ++i) {
      complete(pair->pair.send_cq, &(struct ibv_wc){.wr_id = send->request.wr_id,
                                                    .status = IBV_WC_SUCCESS,
                                                    .opcode = IBV_WC_RDMA_WRITE,
                                                    .qp_num = pair->pair.qp_num});
    }
  }
}

/* The oldest send fails with the status; whatever else there is, is flushed. */
void failPair(struct Pair* pair, int status) {
  pair->pair.state = IBV_QPS_ERR;
  for (; pair->firstSend < pair->endSend; ++pair->firstSend) {
    const struct Send* send = &pair->sends[pair->firstSend % pair->cap.max_send_wr];
    complete(pair->pair.send_cq, &(struct ibv_wc){.wr_id = send->request.wr_id,
                                                  .status = (enum ibv_wc_status)status,
                                                  .vendor_err = 0x81,
                                                  .qp_num = pair->pair.qp_num});
    status = IBV_WC_WR_FLUSH_ERR;
  }
  pair->unsent = pair->endSend;
  for (; pair->firstReceive < pair->endReceive; ++pair->firstReceive) {
    complete(pair->pair.recv_cq,
             &(struct ibv_wc){.wr_id = pair->receives[pair->firstReceive % pair->cap.max_recv_wr],
                              .status = IBV_WC_WR_FLUSH_ERR,
                              .qp_num = pair->pair.qp_num});
  }
}
