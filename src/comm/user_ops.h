// Reductions made at run time (pre-multiplied sums), by the number that stands for them in
// ncclRedOp_t.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/status.h"
#include "kernels/kernels.h"
#include "wire/types.h"

namespace tutti::comm {

struct UserOp {
  DataType type = DataType::kFloat32;
  kernels::Scalar scalar{};
  const void* scalarAddress = nullptr;  // set: read the scalar from here when the operation starts
};

// Thread-safe. Numbers are not reused before 2^15 others of the same place, so a destroyed
// operation is found out.
class UserOps {
 public:
  static constexpr int32_t kFirstNumber = 5;  // after NCCL's built-in operations

  Result<int32_t> add(const UserOp& op);
  Status remove(int32_t number);
  // kInvalidArgument when the number names no operation of this communicator.
  Result<UserOp> find(int32_t number) const;

 private:
  struct Place {
    uint32_t generation = 0;
    std::optional<UserOp> op;
  };
  static constexpr uint32_t kMaxOps = 1u << 15;
  const Place* placeOf(int32_t number) const;

  mutable std::mutex mutex_;
  std::vector<Place> places_;
};

}  // namespace tutti::comm
