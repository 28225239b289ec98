// Little-endian fields in byte strings: what every message of the bootstrap is made of.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tutti::bootstrap {

template <std::integral T>
void storeLittle(std::byte* at, T value) {
  auto bits = static_cast<std::make_unsigned_t<T>>(value);
  for (size_t i = 0; i < sizeof(T); ++i) {
    at[i] = static_cast<std::byte>(static_cast<uint64_t>(bits) >> (8 * i));
  }
}

template <std::integral T>
T loadLittle(const std::byte* at) {
  uint64_t bits = 0;
  for (size_t i = 0; i < sizeof(T); ++i) bits |= static_cast<uint64_t>(at[i]) << (8 * i);
  return static_cast<T>(bits);
}

// As libsodium takes bytes.
inline unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
inline const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

// Of what is encrypted as number `number` under a key, which sees none twice (RFC 8439).
inline constexpr size_t kCounterNonceBytes = 12;
inline std::array<unsigned char, kCounterNonceBytes> nonceOf(uint64_t number) {
  std::array<unsigned char, kCounterNonceBytes> nonce{};
  storeLittle(reinterpret_cast<std::byte*>(nonce.data()), number);
  return nonce;
}

class ByteWriter {
 public:
  template <std::integral T>
  void put(T value) {
    bytes_.resize(bytes_.size() + sizeof(T));
    storeLittle(bytes_.data() + bytes_.size() - sizeof(T), value);
  }
  void putBytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  // Exactly fieldBytes: cut or filled with zeros, always zero-terminated.
  void putText(std::string_view text, size_t fieldBytes) {
    const size_t at = bytes_.size();
    bytes_.resize(at + fieldBytes);
    std::memcpy(bytes_.data() + at, text.data(), std::min(text.size(), fieldBytes - 1));
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what ByteWriter wrote. A read past the end gives zeros and makes isGood() false for good.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <std::integral T>
  T get() {
    const std::span<const std::byte> field = take(sizeof(T));
    return field.empty() ? T{} : loadLittle<T>(field.data());
  }
  void getBytes(std::span<std::byte> out) {
    const std::span<const std::byte> field = take(out.size());
    if (!field.empty()) std::memcpy(out.data(), field.data(), out.size());
  }
  // Control characters become '?': the text goes to logs.
  std::string getText(size_t fieldBytes) {
    std::string text;
    for (std::byte byte : take(fieldBytes)) {
      const char letter = static_cast<char>(byte);
      if (letter == '\0') break;
      text += static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f ? '?' : letter;
    }
    return text;
  }
  std::span<const std::byte> rest() { return take(bytes_.size()); }

  bool isGood() const { return isGood_; }
  bool isAtEnd() const { return isGood_ && bytes_.empty(); }

 private:
  std::span<const std::byte> take(size_t count) {
    if (count > bytes_.size()) {
      isGood_ = false;
      bytes_ = {};
      return {};
    }
    const std::span<const std::byte> field = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return field;
  }

  std::span<const std::byte> bytes_;
  bool isGood_ = true;
};

}  // namespace tutti::bootstrap
