// libFuzzer entry: a page that a rank of another host tells.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "launch/far_pages.h"

namespace tutti::launch {
namespace {

void read(std::span<const std::byte> bytes) {
  constexpr int32_t kRanks = 5;
  constexpr int64_t kNow = 1'000'000'000'000;
  observe::RankView view;
  const auto verdict = decodePage(bytes, kNow, kRanks, view);
  if (!verdict) return;
  if (verdict->guilty < -1 || verdict->guilty >= kRanks) std::abort();
  for (const observe::WaitNote& wait : view.waits) {
    if (wait.peer < 0 || wait.peer >= kRanks || wait.since < 0 || wait.since > kNow) std::abort();
  }
  for (const observe::OperationNote& note : view.history) {
    if (observe::what(note).empty()) std::abort();
  }
}

}  // namespace
}  // namespace tutti::launch

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::launch::read(std::as_bytes(std::span(data, size)));
  return 0;
}
