#include "transport/collnet/collnet_reducer.h"

#include <utility>

namespace tutti::transport::collnet {
namespace {

using tutti::net::HeldGroup;

// A rank's end of one of the two rings. Shared with the other end: the rings and what moves them
// are one.
class CollnetEnd final : public LinkEnd {
 public:
  CollnetEnd(std::shared_ptr<CollnetReducer> reducer, const wire::LinkView& view, Motor* motor)
      : reducer_(std::move(reducer)), view_(view), motor_(motor) {}
  const wire::LinkView& view() const override { return view_; }
  Motor* motor() override { return motor_; }

 private:
  const std::shared_ptr<CollnetReducer> reducer_;
  const wire::LinkView view_;
  Motor* const motor_;
};

Result<std::shared_ptr<CollnetMover>> openMover(HeldGroup& group, const ReducerOptions& options) {
  CollnetMover::Parts parts{.group = group.take(),
                            .maxBytes = options.maxBytes,
                            .setBytes = options.setBytes,
                            .memberCount = options.memberCount,
                            .self = options.self,
                            .geometry = options.geometry};
  tutti::net::Awaited<std::shared_ptr<CollnetMover>> opening;
  opening.start(&group.calls(), [parts = std::move(parts)] { return CollnetMover::open(parts); });
  group.calls().waitUntilIdle(options.patience);
  if (auto mover = opening.take()) return std::move(*mover);
  return makeError(Code::kSystemError, group.calls().complaint(options.patience));
}

}  // namespace

void CollnetReducer::begin(Collective collective, DataType type, ReduceOp op) {
  if (!mover_->begin(collective, type, op)) return;
  group_->calls().post([mover = mover_, network = group_->network()] {
    const tutti::net::ForeignCall call(network, "moving messages");
    mover->serve();
  });
}

CollnetReducer::~CollnetReducer() {
  mover_->leave();
  group_->calls().post([mover = std::move(mover_)] {});
}

Result<ReducerLinks> openLinks(ReducerOptions options) {
  TUTTI_TRY_ASSIGN(auto mover, openMover(*options.group, options));
  const wire::LinkView in = mover->sendRing(), out = mover->receiveRing();
  auto reducer = std::make_shared<CollnetReducer>(std::move(options.group), std::move(mover));
  ReducerLinks links;
  links.reducer = reducer.get();
  links.incoming = std::make_unique<CollnetEnd>(reducer, out, nullptr);
  links.outgoing = std::make_unique<CollnetEnd>(reducer, in, reducer.get());
  return links;
}

}  // namespace tutti::transport::collnet
