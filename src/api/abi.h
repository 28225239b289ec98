// The C boundary: each function checks its arguments, calls the layers below, and turns a Status
// into a code and a text.
#pragma once

#include <nccl.h>

#include <concepts>
#include <cstring>
#include <memory>
#include <string_view>

#include "api/call_range.h"
#include "base/handle_table.h"
#include "base/status.h"
#include "base/uncancelled.h"
#include "comm/communicator.h"
#include "comm/process.h"

// Every API function is defined as pnccl<Name>, strong; nccl<Name> is its weak name, which a tool
// may define in its place.
#define TUTTI_WEAK_TWIN(name) \
  extern "C" __attribute__((weak, alias("p" #name), visibility("default"))) decltype(::name) name

#define TUTTI_EXPORT extern "C" __attribute__((visibility("default")))

namespace tutti::api {

// Sets the thread's last error, notes it in an open group, and gives the code. One place for all
// functions.
ncclResult_t finishFailed(std::string_view function, const Status& status,
                          comm::Communicator* communicator);
inline ncclResult_t finish(std::string_view function, const Status& status,
                           comm::Communicator* communicator) {
  return status.ok() ? ncclSuccess : finishFailed(function, status, communicator);
}

// The communicator of a handle, kept alive while the result is. kInvalidArgument for null,
// destroyed and made-up handles.
Result<std::shared_ptr<comm::Communicator>> findCommunicator(const ncclComm_t handle);

// The number a C caller passed as an enumeration, which may be none of its values: reading it as
// one would be undefined.
template <typename Enum>
int rawValue(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int raw = 0;
  std::memcpy(&raw, &value, sizeof raw);
  return raw;
}

// The same without a share in the communicator: it stays alive while the pin does, which abort and
// destroy wait for. The way of the operations, since a share costs two more locked instructions.
using Pin = HandleTable<comm::Communicator>::Pin;
// Empty for such handles.
inline Pin pinCommunicator(const ncclComm_t handle) {
  comm::Process& process = comm::Process::get();
  return process.isForked() ? Pin() : process.communicators().pin(handle);
}
// Why it was.
Status refuseHandle(const ncclComm_t handle);

// As noteOf() its communicator.
CallNote noteOfHandle(const ncclComm_t handle);

Status checkPointer(const void* pointer, std::string_view name);

// Called while an exception is handled: what the function returns for it, also when there is no
// memory left to say more.
ncclResult_t finishThrown(std::string_view function, comm::Communicator* communicator) noexcept;

// Runs the body of an API function. The only place besides thread entries where exceptions stop.
// `note()` is what a tool that listens is told of the call; `function` is a literal.
template <typename Note, typename Body>
ncclResult_t abiCall(std::string_view function, Note&& note, Body&& body) noexcept {
  const Uncancelled held;
  try {
    const CallRange range(function, note);
    return finish(function, body(), nullptr);
  } catch (...) {
    return finishThrown(function, nullptr);
  }
}

template <typename Body>
ncclResult_t abiCall(std::string_view function, Body&& body) noexcept {
  return abiCall(
      function, [] { return CallNote(); }, body);
}

// The same for a function of a communicator, which also keeps the text.
template <typename Body>
ncclResult_t abiCommCall(std::string_view function, const ncclComm_t handle, Body&& body) noexcept {
  const Uncancelled held;
  std::shared_ptr<comm::Communicator> communicator;
  try {
    const CallRange range(function, [&] { return noteOfHandle(handle); });
    auto found = findCommunicator(handle);
    if (!found.ok()) return finish(function, found.status(), nullptr);
    communicator = std::move(found).value();
    return finish(function, body(communicator), communicator.get());
  } catch (...) {
    return finishThrown(function, communicator.get());
  }
}

// The same for an operation; the body gets the pin, and `note` the communicator, which may be null.
// The body holds cancellation off where it leaves the short way.
template <typename Note, typename Body>
ncclResult_t abiPinnedCall(std::string_view function, const ncclComm_t handle, Note&& note,
                           Body&& body) noexcept {
  Pin pin;
  try {
    pin = pinCommunicator(handle);
    const CallRange range(function, [&] { return note(pin ? &*pin : nullptr); });
    if (!pin) [[unlikely]]
      return finish(function, refuseHandle(handle), nullptr);
    return finish(function, body(pin), &*pin);
  } catch (...) {
    return finishThrown(function, pin ? &*pin : nullptr);
  }
}

}  // namespace tutti::api
