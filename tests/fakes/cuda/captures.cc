// Captures and graphs: of one stream.
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "fakes/cuda/entry.h"
#include "fakes/cuda/stream.h"

namespace fakes::cuda {
namespace {

// What a thread may call while streams are captured, as cuThreadExchangeStreamCaptureMode has it.
constexpr int kModeGlobal = 0, kModeRelaxed = 2;
int& threadsMode() {
  thread_local int mode = kModeGlobal;
  return mode;
}

}  // namespace

Captures& captures() {
  static auto* one = new Captures;
  return *one;
}

int enterUnsafe() {
  if (threadsMode() == kModeRelaxed) return kSuccess;
  int result = kSuccess;
  const std::lock_guard lock(captures().mutex);
  for (Stream* stream : captures().streams) {
    const std::lock_guard streamLock(stream->mutex);
    const bool isOurs = stream->captor == std::this_thread::get_id();
    const bool isForbidden = stream->captureMode == kModeGlobal && threadsMode() == kModeGlobal;
    if (stream->captureMode == kModeRelaxed || (!isOurs && !isForbidden)) continue;
    stream->isBroken = true;
    result = kCaptureForbids;
  }
  return result;
}

FAKE_CUDA cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, threadsMode());
  return kSuccess;
}
FAKE_CUDA cuStreamGetCaptureInfo_v2(void* handle, int* status, unsigned long long* id, void** graph,
                                    void* const** last, size_t* count) {
  FAKE_CUDA_ENTER;
  Stream& stream = streamOf(handle);
  const std::lock_guard lock(stream.mutex);
  *status = stream.isBroken ? 2 : stream.isCapturing ? 1 : 0;
  *id = stream.capture;
  stream.last = reinterpret_cast<void*>(stream.graph.nodes.size());
  if (graph != nullptr) *graph = &stream.graph;
  if (last != nullptr) *last = &stream.last;
  if (count != nullptr) *count = stream.last != nullptr ? 1 : 0;
  return kSuccess;
}
FAKE_CUDA cuStreamBeginCapture_v2(void* handle, int mode) {
  static std::atomic<unsigned long long> count{0};
  Stream& stream = streamOf(handle);
  const std::lock_guard allLock(captures().mutex);
  const std::lock_guard lock(stream.mutex);
  captures().streams.insert(&stream);
  stream.isCapturing = true;
  stream.isBroken = false;
  stream.captureMode = mode;
  stream.captor = std::this_thread::get_id();
  stream.capture = ++count;
  stream.graph = {};
  return kSuccess;
}
FAKE_CUDA cuStreamEndCapture(void* handle, void** graph) {
  Stream& stream = streamOf(handle);
  const std::lock_guard allLock(captures().mutex);
  const std::lock_guard lock(stream.mutex);
  captures().streams.erase(&stream);
  if (!stream.isCapturing) return kInvalidHandle;
  stream.isCapturing = false;
  Graph captured = std::exchange(stream.graph, {});
  *graph = stream.isBroken ? nullptr : new Graph(std::move(captured));
  return std::exchange(stream.isBroken, false) ? kCaptureInvalidated : kSuccess;
}
FAKE_CUDA cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  FAKE_CUDA_ENTER;
  *executable = new Graph(*static_cast<Graph*>(graph));
  return kSuccess;
}
FAKE_CUDA cuGraphUpload(void*, void*) {
  FAKE_CUDA_ENTER;
  return kSuccess;
}
FAKE_CUDA cuGraphLaunch(void* executable, void* stream) {
  FAKE_CUDA_ENTER;
  const Graph& graph = *static_cast<Graph*>(executable);
  for (void* event : graph.waits) {
    if (Work wait = waitFor(event)) streamOf(stream).put(std::move(wait));
  }
  for (const Work& node : graph.nodes) streamOf(stream).put(node);
  for (void* event : graph.records) streamOf(stream).put(recordOf(event));
  streamOf(stream).put([objects = graph.objects] {});  // which it holds until its launches end
  return kSuccess;
}
// Event nodes are first and last in a graph, whatever they are said to follow.
FAKE_CUDA cuGraphAddEventWaitNode(void** node, void* graph, void* const*, size_t, void* event) {
  FAKE_CUDA_ENTER;
  static_cast<Graph*>(graph)->waits.push_back(event);
  *node = event;
  return kSuccess;
}
FAKE_CUDA cuGraphAddEventRecordNode(void** node, void* graph, void* const*, size_t, void* event) {
  FAKE_CUDA_ENTER;
  static_cast<Graph*>(graph)->records.push_back(event);
  *node = event;
  return kSuccess;
}
FAKE_CUDA cuStreamUpdateCaptureDependencies(void*, void**, size_t, unsigned) {
  FAKE_CUDA_ENTER;
  return kSuccess;
}
FAKE_CUDA cuGraphAddDependencies(void*, void* const*, void* const*, size_t) {
  FAKE_CUDA_ENTER;
  return kSuccess;
}
FAKE_CUDA cuGraphRemoveDependencies(void*, void* const*, void* const*, size_t) {
  FAKE_CUDA_ENTER;
  return kSuccess;
}
// A handle is the creator's share.
FAKE_CUDA cuUserObjectCreate(void** object, void* argument, void (*destroy)(void*), unsigned count,
                             unsigned) {
  FAKE_CUDA_ENTER;
  if (count != 1) return kInvalidValue;
  *object = new std::shared_ptr(std::make_shared<UserObject>(argument, destroy));
  return kSuccess;
}
FAKE_CUDA cuUserObjectRelease(void* object, unsigned) {
  delete static_cast<std::shared_ptr<UserObject>*>(object);
  return kSuccess;
}
FAKE_CUDA cuGraphRetainUserObject(void* graph, void* object, unsigned count, unsigned flags) {
  FAKE_CUDA_ENTER;
  constexpr unsigned kMove = 1;
  if (count != 1 || flags != kMove) return kInvalidValue;
  static_cast<Graph*>(graph)->objects.push_back(*static_cast<std::shared_ptr<UserObject>*>(object));
  return cuUserObjectRelease(object, count);
}
FAKE_CUDA cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return kSuccess;
}
FAKE_CUDA cuGraphExecDestroy(void* executable) {
  delete static_cast<Graph*>(executable);
  return kSuccess;
}

}  // namespace fakes::cuda
