#include "comm/user_ops.h"

namespace tutti::comm {
namespace {

constexpr uint32_t kPlaceBits = 15;
constexpr uint32_t kGenerationMask = (1u << 15) - 1;

int32_t numberOf(size_t place, uint32_t generation) {
  return UserOps::kFirstNumber +
         static_cast<int32_t>(((generation & kGenerationMask) << kPlaceBits) |
                              static_cast<uint32_t>(place));
}

}  // namespace

Result<int32_t> UserOps::add(const UserOp& op) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].op) continue;
    places_[i].op = op;
    return numberOf(i, ++places_[i].generation);
  }
  if (places_.size() == kMaxOps)
    return invalidUsage("this communicator already has {} operations made at run time", kMaxOps);
  places_.push_back({.generation = 0, .op = op});
  return numberOf(places_.size() - 1, 0);
}

const UserOps::Place* UserOps::placeOf(int32_t number) const {
  if (number < kFirstNumber) return nullptr;
  const auto value = static_cast<uint32_t>(number - kFirstNumber);
  const uint32_t place = value & (kMaxOps - 1);
  if (place >= places_.size() || !places_[place].op) return nullptr;
  return (places_[place].generation & kGenerationMask) == value >> kPlaceBits ? &places_[place]
                                                                              : nullptr;
}

Status UserOps::remove(int32_t number) {
  std::lock_guard lock(mutex_);
  const Place* place = placeOf(number);
  if (place == nullptr)
    return invalidArgument("operation {} was not made on this communicator, or is destroyed",
                           number);
  places_[static_cast<size_t>(place - places_.data())].op.reset();
  return {};
}

Result<UserOp> UserOps::find(int32_t number) const {
  std::lock_guard lock(mutex_);
  const Place* place = placeOf(number);
  if (place == nullptr) {
    return invalidArgument(
        "operation {} is neither a built-in reduction (0..4) nor one made on this communicator",
        number);
  }
  return UserOp(*place->op);
}

}  // namespace tutti::comm
