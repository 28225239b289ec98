// Gloo over its TCP transport on loopback, which is all it has on one host. Its reduce-scatter is
// an object tied to one buffer, in place, unlike everyone else's call: not measured.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstdlib>
#include <exception>
#include <memory>

#include "bench/peers/harness.h"

namespace {

constexpr size_t kPage = 4096;
constexpr uint64_t kSlot = 1;

// The process is one rank of one job.
std::shared_ptr<gloo::rendezvous::Context> context;

void open(const Place& place) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(place.directory);
  context = std::make_shared<gloo::rendezvous::Context>(place.rank, place.rankCount);
  context->connectFullMesh(store, device);
}

void allReduce(const Call& call) {
  gloo::AllreduceOptions options(context);
  options.setInput(const_cast<float*>(call.send), call.count);
  options.setOutput(call.recv, call.count);
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  gloo::allreduce(options);
}

void allGather(const Call& call) {
  gloo::AllgatherOptions options(context);
  options.setInput(const_cast<float*>(call.send), call.count);
  options.setOutput(call.recv, call.count * static_cast<size_t>(context->size));
  gloo::allgather(options);
}

void broadcast(const Call& call) {
  gloo::BroadcastOptions options(context);
  options.setOutput(call.recv, call.count);
  options.setRoot(0);
  gloo::broadcast(options);
}

void allToAll(const Call& call) {
  const size_t whole = call.count * static_cast<size_t>(context->size);
  gloo::AlltoallOptions options(context);
  options.setInput(const_cast<float*>(call.send), whole);
  options.setOutput(call.recv, whole);
  gloo::alltoall(options);
}

void pingPong(const Call& call) {
  const int other = partnerOf(context->rank, context->size);
  if (other < 0) return;
  const size_t bytes = call.count * sizeof(float);
  const bool isFirst = context->rank < other;
  float* source = isFirst ? const_cast<float*>(call.send) : call.recv;
  auto outgoing = context->createUnboundBuffer(source, bytes);
  auto incoming = context->createUnboundBuffer(call.recv, bytes);
  if (isFirst) {
    outgoing->send(other, kSlot);
    outgoing->waitSend();
  }
  incoming->recv(other, kSlot);
  incoming->waitRecv();
  if (!isFirst) {
    outgoing->send(other, kSlot);
    outgoing->waitSend();
  }
}

void run(const Call& call) {
  switch (call.collective) {
    case kAllReduce: return allReduce(call);
    case kAllGather: return allGather(call);
    case kBroadcast: return broadcast(call);
    case kAllToAll: return allToAll(call);
    case kPingPong: return pingPong(call);
    case kReduceScatter:
    case kCollectiveCount: break;
  }
  fail("collective", "not one of Gloo's");
}

template <typename Body>
void guarded(const char* what, Body body) {
  try {
    body();
  } catch (const std::exception& error) {
    fail(what, error.what());
  }
}

}  // namespace

void peerOpen(const Place* place, int, char**) {
  guarded("Gloo's start", [place] { open(*place); });
}

#define TUTTI_TEXT(value) #value
#define TUTTI_TEXT_OF(value) TUTTI_TEXT(value)
const char* peerDescription(void) {
  return "Gloo " TUTTI_TEXT_OF(GLOO_VERSION_MAJOR) "." TUTTI_TEXT_OF(
      GLOO_VERSION_MINOR) "." TUTTI_TEXT_OF(GLOO_VERSION_PATCH) ", TCP on loopback";
}

int peerHas(Collective collective, size_t) {
  return collective != kReduceScatter && collective != kCollectiveCount;
}

float* peerAllocate(size_t bytes) {
  void* memory = nullptr;
  if (::posix_memalign(&memory, kPage, bytes) != 0) fail("posix_memalign", "no memory");
  return static_cast<float*>(memory);
}

void peerFree(float* memory) { std::free(memory); }

void peerCall(const Call* call) {
  guarded("Gloo's call", [call] { run(*call); });
}

void peerClose(void) { context.reset(); }
