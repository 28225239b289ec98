#include "transport/local/local_transport.h"

#include <errno.h>
#include <sys/mman.h>

#include <map>
#include <mutex>

#include "base/mapping.h"
#include "transport/offer.h"

namespace tutti::transport::local {

// Link memory on its way from receiver to sender. Any thread.
class Exchange {
 public:
  void put(const Token& token, std::shared_ptr<UniqueMapping> memory) {
    std::lock_guard lock(mutex_);
    waiting_.emplace(token, std::move(memory));
  }

  // Null when there is none.
  std::shared_ptr<UniqueMapping> take(const Token& token) {
    std::lock_guard lock(mutex_);
    const auto found = waiting_.find(token);
    if (found == waiting_.end()) return nullptr;
    std::shared_ptr<UniqueMapping> memory = std::move(found->second);
    waiting_.erase(found);
    return memory;
  }

 private:
  std::mutex mutex_;
  std::map<Token, std::shared_ptr<UniqueMapping>> waiting_;  // guarded by mutex_
};

namespace {

class LocalEnd : public LinkEnd {
 public:
  LocalEnd(std::shared_ptr<UniqueMapping> memory, const wire::LinkGeometry& geometry)
      : memory_(std::move(memory)), view_(wire::viewLink(memory_->get(), geometry)) {}
  const wire::LinkView& view() const override { return view_; }
  Motor* motor() override { return nullptr; }

 private:
  const std::shared_ptr<UniqueMapping> memory_;  // shared by the two ends, and the exchange in
                                                 // between
  const wire::LinkView view_;
};

class LocalReceiverEnd final : public LocalEnd {
 public:
  LocalReceiverEnd(std::shared_ptr<UniqueMapping> memory, const wire::LinkGeometry& geometry,
                   std::shared_ptr<Exchange> exchange, const Token& token)
      : LocalEnd(std::move(memory), geometry), exchange_(std::move(exchange)), token_(token) {}
  ~LocalReceiverEnd() override { exchange_->take(token_); }

 private:
  const std::shared_ptr<Exchange> exchange_;  // see LocalTransport
  const Token token_;
};

}  // namespace

LocalTransport::LocalTransport(Rng& rng) : rng_(rng), exchange_(std::make_shared<Exchange>()) {}

std::string LocalTransport::obstacle(const bootstrap::PeerInfo& sender,
                                     const bootstrap::PeerInfo& receiver) const {
  return sender.processHash == receiver.processHash ? "" : "other process";
}

Result<Listening> LocalTransport::listen(const bootstrap::PeerInfo&, const bootstrap::PeerInfo&,
                                         const LinkOptions& options) {
  const wire::LinkGeometry& geometry = options.geometry;
  TUTTI_TRY(checkGeometry(geometry));
  // Anonymous pages are zero, and cost nothing before a slot is used.
  const size_t bytes = wire::linkBytes(geometry);
  TUTTI_TRY_ASSIGN(UniqueMapping pages,
                   mapPrivate(bytes, fmt::format("of a link of {} bytes", bytes)));
  auto memory = std::make_shared<UniqueMapping>(std::move(pages));
  Token token;
  rng_.fill(token);
  exchange_->put(token, memory);
  return Listening{
      .end = std::make_unique<LocalReceiverEnd>(std::move(memory), geometry, exchange_, token),
      .offer = encodeOffer(OfferKind::kLocal, geometry, token)};
}

Result<std::unique_ptr<LinkEnd>> LocalTransport::connect(const bootstrap::PeerInfo& sender,
                                                         const bootstrap::PeerInfo& receiver,
                                                         const LinkOptions& options,
                                                         const Offer& offer) {
  const wire::LinkGeometry& geometry = options.geometry;
  TUTTI_TRY(checkGeometry(geometry));
  TUTTI_TRY_ASSIGN(const Token token, decodeOffer(offer, OfferKind::kLocal, geometry));
  std::shared_ptr<UniqueMapping> memory = exchange_->take(token);
  if (memory == nullptr || memory->bytes() != wire::linkBytes(geometry)) {
    return remoteError(
        "rank {}: rank {} has no link under the token it offered (withdrawn, or taken before)",
        sender.rank, receiver.rank);
  }
  std::unique_ptr<LinkEnd> end = std::make_unique<LocalEnd>(std::move(memory), geometry);
  return end;
}

}  // namespace tutti::transport::local
