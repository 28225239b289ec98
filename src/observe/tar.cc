#include "observe/tar.h"

#include <fmt/core.h>

#include <array>
#include <cassert>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/units.h"

namespace tutti::observe {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kRecord = 20 * kBlock;  // what tar pads an archive to

struct Header {
  std::array<char, 100> name;
  std::array<char, 8> mode;
  std::array<char, 8> user;
  std::array<char, 8> group;
  std::array<char, 12> size;
  std::array<char, 12> time;
  std::array<char, 8> checksum;
  char kind;
  std::array<char, 100> linkName;
  std::array<char, 8> magic;  // and the version: "ustar", a zero, "00"
  std::array<char, 247> rest;
};
static_assert(sizeof(Header) == kBlock);

// Octal digits, and a zero behind them.
template <size_t kBytes>
void setNumber(std::array<char, kBytes>& field, uint64_t value) {
  const std::string text = fmt::format("{:0{}o}", value, kBytes - 1);
  std::memcpy(field.data(), text.data(), kBytes - 1);
}

uint64_t sumOf(const Header& header) {
  std::array<unsigned char, sizeof header> bytes;
  std::memcpy(bytes.data(), &header, sizeof header);
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

}  // namespace

void Tar::add(std::string_view name, std::string_view content) {
  Header header{};
  assert(name.size() <= header.name.size());
  std::memcpy(header.name.data(), name.data(), name.size());
  setNumber(header.mode, 0600);
  setNumber(header.user, 0);
  setNumber(header.group, 0);
  setNumber(header.size, content.size());
  setNumber(header.time, static_cast<uint64_t>(time_));
  header.kind = '0';
  std::memcpy(header.magic.data(), "ustar\00000", header.magic.size());
  header.checksum.fill(' ');  // as the sum is defined
  const std::string sum = fmt::format("{:06o}", sumOf(header));
  std::memcpy(header.checksum.data(), sum.c_str(), sum.size() + 1);
  bytes_.append(reinterpret_cast<const char*>(&header), sizeof header);
  bytes_ += content;
  bytes_.resize(roundUp(bytes_.size(), kBlock));
}

std::string Tar::finish() {
  bytes_.resize(roundUp(bytes_.size() + 2 * kBlock, kRecord));
  return std::move(bytes_);
}

}  // namespace tutti::observe
