// Captures and graphs: of one stream.
#include <atomic>
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
FAKE_CUDA cuStreamGetCaptureInfo_v2(void* handle, int* status, unsigned long long* id, void**,
                                    const void**, size_t*) {
  FAKE_CUDA_ENTER;
  Stream& stream = streamOf(handle);
  const std::lock_guard lock(stream.mutex);
  *status = stream.isBroken ? 2 : stream.isCapturing ? 1 : 0;
  *id = stream.capture;
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
  *graph = stream.isBroken ? nullptr : new Graph(stream.graph);
  return std::exchange(stream.isBroken, false) ? kCaptureInvalidated : kSuccess;
}
FAKE_CUDA cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  FAKE_CUDA_ENTER;
  *executable = new Graph(*static_cast<Graph*>(graph));
  return kSuccess;
}
FAKE_CUDA cuGraphLaunch(void* executable, void* stream) {
  FAKE_CUDA_ENTER;
  for (const Work& node : static_cast<Graph*>(executable)->nodes) streamOf(stream).put(node);
  return kSuccess;
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
