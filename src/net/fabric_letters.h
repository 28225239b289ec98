// What the two sides of a meeting write each other. Included by them only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "net/fabric_meeting.h"

namespace tutti::net {

inline constexpr size_t kMaxLanes = 1 + kMaxPayloadLanes;
inline constexpr uint32_t kMeetingVersion = 2;

struct MeetingOffer {
  uint32_t version = kMeetingVersion;
  uint32_t laneCount = 0;
  uint32_t firstDevice = 0;
  uint32_t zero = 0;
  uint64_t maxMessageBytes = 0;
  std::array<char, 64> fabric{};  // its name, zero-terminated
  std::array<LaneHandle, kMaxLanes> handles{};
};
struct MeetingAnswer {
  uint64_t maxMessageBytes = 0;
  std::array<LaneHandle, kMaxLanes> answers{};
};
inline constexpr size_t kMaxLetterBytes = 2048;
static_assert(sizeof(MeetingOffer) <= kMaxLetterBytes && sizeof(MeetingAnswer) <= kMaxLetterBytes);

template <typename T>
std::span<const std::byte> letterOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// False: it is none of these.
template <typename T>
bool readLetter(const Mail::Letter& letter, T& value) {
  if (letter.body.size() != sizeof value) return false;
  std::memcpy(&value, letter.body.data(), sizeof value);
  return true;
}

}  // namespace tutti::net
