// The range of a call, for tools that watch the program (observe/call_ranges.h). Without one it
// costs a call one load and one branch.
#pragma once

#include <atomic>
#include <string_view>

#include "comm/communicator.h"
#include "observe/call_ranges.h"

namespace tutti::api {

// Whether a tool may listen: written once, false, by the first call that finds none. Relaxed, as
// whoever still reads true looks again.
extern std::atomic<bool> areCallsWatched;

// What a call is about; of an operation's only when somebody listens.
struct CallNote {
  observe::CallKind kind = observe::CallKind::kPlain;
  observe::CallPayload payload{};
};

// A call on a communicator; null: none was found.
CallNote noteOf(const comm::Communicator* communicator);
// A call about memory.
inline CallNote noteOfBytes(size_t bytes) {
  return {.kind = observe::CallKind::kMemory, .payload = {.bytes = bytes}};
}

class CallRange {
 public:
  // `note()` gives a CallNote. REQUIRES: `function` is a literal.
  template <typename Note>
  CallRange(std::string_view function, Note&& note) {
    if (areCallsWatched.load(std::memory_order_relaxed)) [[unlikely]]
      begin(function, note());
  }
  ~CallRange() {
    if (ranges_ != nullptr) [[unlikely]]
      ranges_->end();
  }
  CallRange(const CallRange&) = delete;
  CallRange& operator=(const CallRange&) = delete;

 private:
  void begin(std::string_view function, const CallNote& note);

  observe::CallRanges* ranges_ = nullptr;
};

}  // namespace tutti::api
