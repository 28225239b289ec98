// A sending end that is there at once, where another may be pending.
#pragma once

#include <memory>
#include <utility>

#include "transport/transport.h"

namespace tutti::transport {

class ReadyEnd final : public PendingEnd {
 public:
  explicit ReadyEnd(std::unique_ptr<LinkEnd> end) : end_(std::move(end)) {}
  Result<std::unique_ptr<LinkEnd>> poll() override { return std::move(end_); }

 private:
  std::unique_ptr<LinkEnd> end_;
};

inline std::unique_ptr<PendingEnd> makeReady(std::unique_ptr<LinkEnd> end) {
  return std::make_unique<ReadyEnd>(std::move(end));
}

}  // namespace tutti::transport
