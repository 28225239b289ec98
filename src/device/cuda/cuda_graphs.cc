// What a device puts into the user's graphs beside the work that is captured.
#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "device/cuda/context_scope.h"
#include "device/cuda/cuda_device.h"

namespace tutti::device::cuda {
namespace {

EventHandle eventOf(Event* event) { return reinterpret_cast<EventHandle>(event); }

}  // namespace

Result<CudaDevice::CapturedGraph> CudaDevice::graphOf(void* stream) const {
  int status = kCaptureNone;
  unsigned long long id = 0;
  CapturedGraph found;
  const GraphNode* last = nullptr;
  size_t count = 0;
  TUTTI_TRY(driver_.check(driver_.streamCaptureInfo(static_cast<StreamHandle>(stream), &status, &id,
                                                    &found.graph, &last, &count),
                          "cuStreamGetCaptureInfo"));
  if (status != kCaptureActive)
    return internalError("the capture of stream {} has ended or failed", stream);
  found.last.assign(last, last + count);
  return found;
}

// Beside the graph's other roots: in the stream's path it would hold up what the user has there
// before the call.
Status CudaDevice::waitInGraph(void* stream, Event* event) {
  const ContextScope scope(driver_, context_);
  TUTTI_TRY_ASSIGN(const CapturedGraph captured, graphOf(stream));
  GraphNode node = nullptr;
  TUTTI_TRY(driver_.check(
      driver_.graphAddWait(&node, captured.graph, nullptr, 0, eventOf(event)),
      "cuGraphAddEventWaitNode",
      "to order a graph with other calls; NCCL_GRAPH_MIXING_SUPPORT=0 leaves that to the program"));
  return driver_.check(
      driver_.updateCapture(static_cast<StreamHandle>(stream), &node, 1, kAddCaptureDependencies),
      "cuStreamUpdateCaptureDependencies");
}

Status CudaDevice::recordInGraph(Event* event, void* stream, RecordInGraph& place) {
  const ContextScope scope(driver_, context_);
  TUTTI_TRY_ASSIGN(const CapturedGraph captured, graphOf(stream));
  const std::vector<GraphNode>& last = captured.last;
  if (place.node == nullptr) {
    GraphNode node = nullptr;
    TUTTI_TRY(driver_.check(
        driver_.graphAddRecord(&node, captured.graph, last.data(), last.size(), eventOf(event)),
        "cuGraphAddEventRecordNode"));
    place = {.node = node, .behind = {last.begin(), last.end()}};
    return {};
  }
  // Those in both stay: the driver refuses an edge that is there already. First the new ones, so
  // that the record is never without.
  std::vector<GraphNode> gone;
  for (void* node : place.behind) gone.push_back(static_cast<GraphNode>(node));
  std::vector<GraphNode> come = last;
  std::erase_if(come, [&](GraphNode node) { return std::erase(gone, node) != 0; });
  const std::vector<GraphNode> record(std::max(gone.size(), come.size()),
                                      static_cast<GraphNode>(place.node));
  if (!come.empty()) {
    TUTTI_TRY(driver_.check(
        driver_.graphAddEdges(captured.graph, come.data(), record.data(), come.size()),
        "cuGraphAddDependencies"));
  }
  if (!gone.empty()) {
    TUTTI_TRY(driver_.check(
        driver_.graphRemoveEdges(captured.graph, gone.data(), record.data(), gone.size()),
        "cuGraphRemoveDependencies"));
  }
  place.behind.assign(last.begin(), last.end());
  return {};
}

// The driver's reference moves to the graph. It destroys the object on a thread of its own.
Status CudaDevice::shareWithGraph(void* stream, std::shared_ptr<const void> object) {
  using Shared = std::shared_ptr<const void>;
  const ContextScope scope(driver_, context_);
  TUTTI_TRY_ASSIGN(const CapturedGraph captured, graphOf(stream));
  auto shared = std::make_unique<Shared>(std::move(object));
  UserObject reference = nullptr;
  TUTTI_TRY(driver_.check(
      driver_.userObjectCreate(
          &reference, shared.get(), [](void* one) { delete static_cast<Shared*>(one); }, 1,
          kUserObjectNoDestructorSync),
      "cuUserObjectCreate"));
  std::ignore = shared.release();
  const DriverResult result =
      driver_.graphRetain(captured.graph, reference, 1, kGraphUserObjectMove);
  if (result != kSuccess) driver_.userObjectRelease(reference, 1);
  return driver_.check(result, "cuGraphRetainUserObject");
}

}  // namespace tutti::device::cuda
