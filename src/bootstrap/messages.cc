#include "bootstrap/messages.h"

#include <algorithm>

#include "bootstrap/bytes.h"
#include "bootstrap/frame.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kWhoBytes = kContactBytes - kEncodedAddressBytes - sizeof(uint64_t);
constexpr size_t kMaxPeers = 2 * 20 + 1;  // rank ± 2^k below kMaxRankCount, and a guest
static_assert(kMaxRankCount == 1 << 20);

void put(ByteWriter& writer, const Contact& contact) {
  const EncodedAddress address = encodeAddress(contact.address);
  writer.putBytes(std::as_bytes(std::span(address)));
  writer.put(contact.processHash);
  writer.putText(contact.who, kWhoBytes);
}

std::optional<Contact> getContact(ByteReader& reader) {
  EncodedAddress bytes{};
  reader.getBytes(std::as_writable_bytes(std::span(bytes)));
  Contact contact;
  contact.processHash = reader.get<uint64_t>();
  contact.who = reader.getText(kWhoBytes);
  if (!reader.isGood()) return std::nullopt;
  Result<SocketAddress> address = decodeAddress(bytes);
  if (!address.ok()) return std::nullopt;
  contact.address = *address;
  return contact;
}

bool isValid(const Circle& circle, int32_t rankCount) {
  if (circle.of == 0) return circle == Circle{};
  if (circle.of < 1 || circle.of > kMaxRankCount) return false;
  if (circle.first < 0 || circle.first >= circle.of) return false;
  if (circle.guests < 0 || circle.guests > 1) return false;
  return rankCount > circle.guests && rankCount - circle.guests <= circle.of;
}

// Only codes that can come from the rules of meeting; anything else is the peer's fault.
Code checkedCode(uint8_t code) {
  const auto known = {Code::kSystemError, Code::kInternalError, Code::kInvalidArgument,
                      Code::kInvalidUsage, Code::kRemoteError};
  const auto found = std::find(known.begin(), known.end(), static_cast<Code>(code));
  return found == known.end() ? Code::kRemoteError : *found;
}

}  // namespace

std::vector<std::byte> encode(const Contact& contact) {
  ByteWriter writer;
  put(writer, contact);
  return std::move(writer.bytes());
}

std::optional<Contact> decodeContact(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  std::optional<Contact> contact = getContact(reader);
  return reader.isAtEnd() ? contact : std::nullopt;
}

std::vector<std::byte> encode(const Report& report) {
  ByteWriter writer;
  writer.put(index(report.rank));
  writer.put(report.rankCount);
  writer.put(static_cast<uint32_t>(report.timeout.count()));
  put(writer, report.contact);
  writer.put(report.circle.first);
  writer.put(report.circle.of);
  writer.put(report.circle.guests);
  writer.put(report.circle.listHash);
  return std::move(writer.bytes());
}

std::optional<Report> decodeReport(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Report report;
  report.rank = Rank{reader.get<int32_t>()};
  report.rankCount = reader.get<int32_t>();
  report.timeout = std::chrono::milliseconds(reader.get<uint32_t>());
  std::optional<Contact> contact = getContact(reader);
  report.circle.first = reader.get<int32_t>();
  report.circle.of = reader.get<int32_t>();
  report.circle.guests = reader.get<int32_t>();
  report.circle.listHash = reader.get<uint64_t>();
  if (!contact || !reader.isAtEnd()) return std::nullopt;
  if (report.rankCount < 1 || report.rankCount > kMaxRankCount) return std::nullopt;
  if (index(report.rank) < 0 || index(report.rank) >= report.rankCount) return std::nullopt;
  if (!isValid(report.circle, report.rankCount)) return std::nullopt;
  report.contact = std::move(*contact);
  return report;
}

std::vector<std::byte> encode(const Answer& answer) {
  ByteWriter writer;
  writer.put(answer.epoch);
  writer.put(static_cast<uint32_t>(answer.peers.size()));
  for (const Answer::Peer& peer : answer.peers) {
    writer.put(index(peer.rank));
    put(writer, peer.contact);
  }
  return std::move(writer.bytes());
}

std::optional<Answer> decodeAnswer(std::span<const std::byte> bytes, int32_t rankCount) {
  ByteReader reader(bytes);
  Answer answer;
  answer.epoch = reader.get<uint64_t>();
  const auto count = reader.get<uint32_t>();
  if (count > kMaxPeers) return std::nullopt;
  for (uint32_t i = 0; i < count; ++i) {
    const auto rank = reader.get<int32_t>();
    std::optional<Contact> contact = getContact(reader);
    if (!contact || rank < 0 || rank >= rankCount) return std::nullopt;
    answer.peers.push_back({Rank{rank}, std::move(*contact)});
  }
  if (!reader.isAtEnd()) return std::nullopt;
  return answer;
}

std::vector<std::byte> encode(const Status& failure) {
  const size_t limit = maxPayloadBytes(FrameType::kFailure) - 1;
  ByteWriter writer;
  writer.put(static_cast<uint8_t>(failure.code()));
  writer.putText(failure.message(), std::min(failure.message().size() + 1, limit));
  return std::move(writer.bytes());
}

Status decodeFailure(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const Code code = checkedCode(reader.get<uint8_t>());
  const std::string text = reader.isGood() ? reader.getText(bytes.size() - 1) : "";
  return makeError(code, text.empty() ? "the root refused this rank without a reason" : text);
}

}  // namespace tutti::bootstrap
