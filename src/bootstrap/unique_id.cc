#include "bootstrap/unique_id.h"

#include <fmt/core.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/char_field.h"
#include "bootstrap/bytes.h"

namespace tutti::bootstrap {
namespace {

// "TUT" and the version of the layout.
constexpr uint32_t kMagic = 0x545554;
constexpr uint32_t kMagicMask = 0xffffff;
constexpr uint32_t kVersion = 1;

constexpr size_t kAddressAt = 4;
constexpr size_t kJobAt = 32;
constexpr size_t kSecretAt = 48;
constexpr size_t kCreatedAt = 80;
constexpr size_t kMakerAt = 88;
constexpr size_t kMakerHostAt = kMakerAt + sizeof(Maker::processId);
constexpr size_t kChecksumAt = 112;
static_assert(kMakerHostAt + sizeof(Maker::hostName) == kChecksumAt);
constexpr size_t kChecksumBytes = 16;
static_assert(kChecksumAt + kChecksumBytes == kUniqueIdBytes);

std::array<std::byte, kChecksumBytes> checksumOf(const std::array<std::byte, kUniqueIdBytes>& id) {
  std::array<std::byte, kChecksumBytes> checksum;
  crypto_generichash(raw(checksum.data()), checksum.size(), raw(id.data()), kChecksumAt, nullptr,
                     0);
  return checksum;
}

}  // namespace

std::array<std::byte, kUniqueIdBytes> encode(const UniqueId& id) {
  std::array<std::byte, kUniqueIdBytes> bytes{};
  storeLittle(bytes.data(), kMagic | (kVersion << 24));
  std::memcpy(&bytes[kAddressAt], id.address.data(), id.address.size());
  std::memcpy(&bytes[kJobAt], id.job.data(), id.job.size());
  std::memcpy(&bytes[kSecretAt], id.secret.data(), id.secret.size());
  storeLittle(&bytes[kCreatedAt], id.createdSeconds);
  storeLittle(&bytes[kMakerAt], id.maker.processId);
  std::memcpy(&bytes[kMakerHostAt], id.maker.hostName.data(), id.maker.hostName.size());
  const auto checksum = checksumOf(bytes);
  std::copy(checksum.begin(), checksum.end(), bytes.begin() + kChecksumAt);
  return bytes;
}

Result<UniqueId> decode(const std::array<std::byte, kUniqueIdBytes>& bytes) {
  if (std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; })) {
    return invalidArgument(
        "the unique id is all zeros: was ncclGetUniqueId called on rank 0 and the result sent to "
        "all?");
  }
  const auto magic = loadLittle<uint32_t>(bytes.data());
  if ((magic & kMagicMask) != kMagic) {
    return invalidArgument(
        "these 128 bytes are no unique id of this library (they start with {:#010x}): did all "
        "ranks load the same libnccl?",
        magic);
  }
  if (magic >> 24 != kVersion) {
    return invalidArgument("the unique id has layout version {}, this library reads version {}",
                           magic >> 24, kVersion);
  }
  const auto checksum = checksumOf(bytes);
  if (!std::equal(checksum.begin(), checksum.end(), bytes.begin() + kChecksumAt)) {
    return invalidArgument(
        "the unique id was cut or garbled on its way (its checksum does not match): all 128 bytes "
        "must arrive unchanged");
  }
  UniqueId id;
  std::memcpy(id.address.data(), &bytes[kAddressAt], id.address.size());
  std::memcpy(id.job.data(), &bytes[kJobAt], id.job.size());
  std::memcpy(id.secret.data(), &bytes[kSecretAt], id.secret.size());
  id.createdSeconds = loadLittle<uint64_t>(&bytes[kCreatedAt]);
  id.maker.processId = loadLittle<int32_t>(&bytes[kMakerAt]);
  std::memcpy(id.maker.hostName.data(), &bytes[kMakerHostAt], id.maker.hostName.size());
  return id;
}

Maker makerOn(std::string_view hostName) {
  Maker maker{.processId = ::getpid()};
  setText(maker.hostName, hostName.substr(0, hostName.find('.')));
  return maker;
}

std::string describe(const Maker& maker) {
  if (maker.processId <= 0) return "";
  const std::string host = textOf(maker.hostName);
  return fmt::format("process {} on {}", maker.processId,
                     foreignText(std::as_bytes(std::span(host))));
}

std::string jobName(const JobId& job) {
  return fmt::format("{:02x}{:02x}{:02x}{:02x}", job[0], job[1], job[2], job[3]);
}

}  // namespace tutti::bootstrap
