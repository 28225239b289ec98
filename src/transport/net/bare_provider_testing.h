// For tests: a network at which nobody is met, and whose connections nobody watches. Those that do
// more derive from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "net/net.h"

namespace tutti::transport::net {

class BareProvider : public tutti::net::Provider {
 public:
  explicit BareProvider(Caps caps) : caps_(std::move(caps)) {}
  const Caps& caps() const override { return caps_; }
  Result<Contact> contact() override { return Contact{}; }
  void expect(uint64_t, std::shared_ptr<tutti::net::Worker>) override {}
  void forget(uint64_t) override {}
  Result<std::unique_ptr<tutti::net::PendingConnection>> connect(
      const Contact&, const tutti::net::Caller&, std::chrono::milliseconds) override {
    return Status(Code::kInternalError, "not in this test");
  }
  Result<uint64_t> watch(tutti::net::Connection&, const tutti::net::Readiness&,
                         std::shared_ptr<tutti::net::Worker>) override {
    return uint64_t{1};
  }
  void unwatch(uint64_t) override {}

 private:
  const Caps caps_;
};

}  // namespace tutti::transport::net
