// What each call of the fake driver begins with: whether it is to fail, and what a capture forbids.
#pragma once

#include <atomic>

namespace fakes::cuda {

using Pointer = unsigned long long;

constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidHandle = 400, kNotReady = 600;
constexpr int kCaptureForbids = 900, kCaptureInvalidated = 901, kNotSupported = 801;

// Whatever was made and is still there.
extern std::atomic<long> alive;

// What the call returns instead of doing anything; success: it does.
int enter(const char* call);

// Of calls that may wait for the device: where a capture forbids them, they break it.
int enterUnsafe();

// As over NVLink, where FAKE_CUDA=shares.
bool doesShare();

}  // namespace fakes::cuda

#define FAKE_CUDA extern "C" __attribute__((visibility("default"))) int
#define FAKE_CUDA_REFUSES(name) \
  FAKE_CUDA name() { return kNotSupported; }
#define FAKE_CUDA_ENTER \
  if (const int result = enter(__func__); result != kSuccess) return result
#define FAKE_CUDA_ENTER_UNSAFE \
  FAKE_CUDA_ENTER;             \
  if (const int forbids = enterUnsafe(); forbids != kSuccess) return forbids
