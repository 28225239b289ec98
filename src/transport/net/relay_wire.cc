#include "transport/net/relay_wire.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/char_field.h"
#include "bootstrap/poller.h"
#include "transport/parting.h"

namespace tutti::transport::net {

void write(PartingWords& words, const Parting& parting) {
  if (words.isThere.load(std::memory_order_relaxed) != 0) return;
  const std::string text = encodeParting(parting, words.text.size());
  std::memcpy(words.text.data(), text.data(), text.size());
  words.bytes = static_cast<uint32_t>(text.size());
  words.isThere.store(1, std::memory_order_release);
}

bool read(PartingWords& words, Parting& parting) {
  if (words.isThere.load(std::memory_order_acquire) == 0) return false;
  const size_t bytes = std::min<size_t>(words.bytes, words.text.size());
  parting = decodeParting(std::span(words.text).first(bytes));
  return true;
}

Result<AskedLink> readRequest(const RelayRequest& request) {
  const wire::LinkGeometry geometry{.slotCount = request.slotCount, .slotBytes = request.slotBytes};
  if (request.magic != RelayRequest::kMagic || request.zero != 0 || !wire::isValid(geometry)) {
    return remoteError("rank {} asks to carry a link of {} slots of {} bytes: no such link",
                       request.sender, request.slotCount, request.slotBytes);
  }
  TUTTI_TRY_ASSIGN(const NetOffer offer, decodeNetOffer(request.offer, geometry, request.receiver));
  return AskedLink{.geometry = geometry, .offer = offer};
}

Result<std::string> readAnswer(const RelayAnswer& answer) {
  if (answer.outcome > RelayAnswer::Outcome::kCarried || answer.bytes > answer.why.size())
    return Status(Code::kRemoteError, "its process gives a garbled answer");
  return foreignText(std::as_bytes(std::span(answer.why).first(answer.bytes)));
}

Result<Progress> tryReceiveBytes(int channel, std::span<std::byte> record) {
  const ssize_t got = ::recv(channel, record.data(), record.size(), MSG_DONTWAIT);
  if (got == static_cast<ssize_t>(record.size())) return Progress::kDone;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::kIdle;
  return Status(Code::kRemoteError, "its process has closed the channel");
}

Status receiveBytes(int channel, std::span<std::byte> record, const Patience& patience) {
  constexpr int kBetweenLooksMs = 50;  // for an abort
  const Instant deadline = patience.clock.now() + patience.timeout;
  for (;;) {
    TUTTI_TRY_ASSIGN(const Progress progress, tryReceiveBytes(channel, record));
    if (progress == Progress::kDone) return {};
    if (patience.abort != nullptr && patience.abort->load(std::memory_order_acquire))
      return Status(Code::kInternalError, "aborted while a process was to answer");
    const int left = bootstrap::millisecondsUntil(patience.clock, deadline);
    if (left == 0) return Status(Code::kRemoteError, "its process does not answer");
    pollfd entry{channel, POLLIN, 0};
    [[maybe_unused]] const int ready =
        ::poll(&entry, 1, patience.abort == nullptr ? left : std::min(left, kBetweenLooksMs));
  }
}

bool hasGone(int channel) {
  std::byte byte{};
  const ssize_t got = ::recv(channel, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return got >= 0 || (errno != EAGAIN && errno != EINTR);
}

}  // namespace tutti::transport::net
