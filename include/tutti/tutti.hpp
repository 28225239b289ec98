// The C interface as C++20 values: owners that free themselves, errors as exceptions, and
// operations that take any contiguous range and deduce the data type. Header-only; needs
// libnccl.so.2 at link time and nothing else.
//
//   tutti::Communicator comm = tutti::Communicator::init(rank, count, id);
//   comm.allReduce(gradients, ncclSum);            // in place: vector, array, span of a known type
//   comm.allGather(mine, everyones, stream);
//
// Shapes, roots, streams, threads and in-place rules are nccl.h's. In short: a CPU rank passes host
// memory, and no stream (the call returns with the result there) or a HostStream. A GPU rank passes
// spans over device memory and a CUDA stream. Sizes that do not fit each other are refused here,
// before anything is sent.
#pragma once

#include <nccl.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/error.hpp"
#include "tutti/host.hpp"

namespace tutti {
// Versioned, so that these names never meet the library's own of another version in one program.
inline namespace v0 {

// ---- Data types -------------------------------------------------------------------------------

// What T is called on the wire. Specialise it for a 16- or 8-bit floating type of your own:
//   template <> struct tutti::DataTypeOf<MyHalf> {
//     static constexpr ncclDataType_t value = ncclFloat16;
//   };
template <typename T>
struct DataTypeOf {};

// The integers of 1, 4 and 8 bytes, whatever they are called; there are none of 2.
template <typename T>
requires(std::integral<T> && !std::same_as<T, bool> && sizeof(T) != 2) struct DataTypeOf<T> {
  static constexpr bool kSigned = std::is_signed_v<T>;
  static constexpr ncclDataType_t value = sizeof(T) == 1   ? (kSigned ? ncclInt8 : ncclUint8)
                                          : sizeof(T) == 4 ? (kSigned ? ncclInt32 : ncclUint32)
                                                           : (kSigned ? ncclInt64 : ncclUint64);
};
template <>
struct DataTypeOf<std::byte> {
  static constexpr ncclDataType_t value = ncclUint8;
};
template <>
struct DataTypeOf<float> {
  static constexpr ncclDataType_t value = ncclFloat32;
};
template <>
struct DataTypeOf<double> {
  static constexpr ncclDataType_t value = ncclFloat64;
};
#ifdef TUTTI_NCCL_H_HAS_CUDA
template <>
struct DataTypeOf<__half> {
  static constexpr ncclDataType_t value = ncclFloat16;
};
template <>
struct DataTypeOf<__nv_bfloat16> {
  static constexpr ncclDataType_t value = ncclBfloat16;
};
#endif

template <typename R>
concept Input = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && requires {
  { DataTypeOf<std::ranges::range_value_t<R>>::value } -> std::convertible_to<ncclDataType_t>;
};
// An input whose elements may be written; a temporary only where it is a view, such as a span.
template <typename R>
concept Output =
    Input<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;
template <typename In, typename Out>
concept SameElements =
    std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>;

// ---- Unique ids -------------------------------------------------------------------------------

// Where the ranks of a new communicator meet, and their secret. Plain bytes: send them as you like,
// but privately.
class UniqueId {
 public:
  static constexpr size_t kByteCount = NCCL_UNIQUE_ID_BYTES;

  // Makes an id in the process of one rank, which listens from now on.
  static UniqueId create() {
    UniqueId id;
    check(ncclGetUniqueId(&id.id_), "ncclGetUniqueId");
    return id;
  }
  static UniqueId fromBytes(std::span<const std::byte, kByteCount> bytes) {
    UniqueId id;
    std::memcpy(id.id_.internal, bytes.data(), kByteCount);
    return id;
  }

  std::span<const std::byte, kByteCount> bytes() const {
    return std::as_bytes(std::span(id_.internal));
  }
  const ncclUniqueId& get() const { return id_; }

 private:
  UniqueId() : id_{} {}
  ncclUniqueId id_;
};

// ---- Groups -----------------------------------------------------------------------------------

// What this thread calls between construction and end() is done as one. Groups nest; the outermost
// one acts. A Group that dies without end(), as when an exception passes, still ends, and swallows
// the group's error.
class Group {
 public:
  Group() { check(ncclGroupStart(), "ncclGroupStart"); }
  ~Group() {
    if (isOpen_) (void)ncclGroupEnd();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Returns whether all is done; false only with non-blocking communicators. Throws the group's
  // first error.
  bool end() {
    if (!std::exchange(isOpen_, false))
      throw Error(ncclInvalidUsage, "this group has ended before");
    return check(ncclGroupEnd(), "ncclGroupEnd");
  }
  // Ends the group without doing its operations; returns the microseconds they would take.
  float simulate() {
    if (!std::exchange(isOpen_, false))
      throw Error(ncclInvalidUsage, "this group has ended before");
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    check(ncclGroupSimulateEnd(&info), "ncclGroupSimulateEnd");
    return info.estimatedTime;
  }

 private:
  bool isOpen_ = true;
};

// ---- Memory -----------------------------------------------------------------------------------

// An array of `count` elements from ncclMemAlloc, of undefined contents at first. A contiguous
// range, so it goes wherever a vector goes.
template <typename T>
requires std::is_trivially_copyable_v<T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t count) : size_(count) {
    if (count > SIZE_MAX / sizeof(T)) throw Error(ncclInvalidArgument, "the buffer is too large");
    void* memory = nullptr;
    if (count > 0) check(ncclMemAlloc(&memory, count * sizeof(T)), "ncclMemAlloc");
    data_ = static_cast<T*>(memory);
  }
  ~Buffer() {
    if (data_ != nullptr) (void)ncclMemFree(data_);
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// ---- Communicators ----------------------------------------------------------------------------

// A config with nothing set; set fields, then pass it to init, split or shrink.
inline ncclConfig_t unsetConfig() {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  return config;
}

// Frees a reduction made at run time, which may be as soon as its last use was called.
class ScaledSum {
 public:
  ScaledSum(ncclComm_t comm, ncclRedOp_t op) : comm_(comm), op_(op) {}
  ~ScaledSum() {
    if (comm_ != nullptr) (void)ncclRedOpDestroy(op_, comm_);
  }
  ScaledSum(ScaledSum&& other) noexcept
      : comm_(std::exchange(other.comm_, nullptr)), op_(other.op_) {}
  ScaledSum& operator=(ScaledSum&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(op_, other.op_);
    return *this;
  }

  ncclRedOp_t get() const { return op_; }
  operator ncclRedOp_t() const { return op_; }

 private:
  ncclComm_t comm_;
  ncclRedOp_t op_;
};

// One rank's membership. The destructor destroys it, which waits for its operations; on the way out
// of an exception too, where abort() may be what you want instead. One thread at a time, except
// abort() and asyncError().
class Communicator {
 public:
  Communicator() = default;  // of nothing
  ~Communicator() {
    if (comm_ != nullptr) (void)ncclCommDestroy(comm_);
  }
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }

  // Joins as `rank` of `count`. Collective. Not inside a Group: see initInto.
  static Communicator init(int rank, int count, const UniqueId& id,
                           const ncclConfig_t& config = unsetConfig()) {
    Communicator made;
    initInto(made, rank, count, id, config);
    return made;
  }
  // The same for one thread that makes several ranks inside a Group: `made` must be empty, and must
  // stay where it is until the group has ended.
  static void initInto(Communicator& made, int rank, int count, const UniqueId& id,
                       const ncclConfig_t& config = unsetConfig()) {
    if (made.comm_ != nullptr) throw Error(ncclInvalidUsage, "the communicator is in use already");
    ncclConfig_t wishes = config;
    check(ncclCommInitRankConfig(&made.comm_, count, id.get(), rank, &wishes),
          "ncclCommInitRankConfig");
  }
  // All `count` ranks in this process; rank i is element i.
  static std::vector<Communicator> initAll(int count) { return initAll(count, nullptr); }
  static std::vector<Communicator> initAll(std::span<const int> devices) {
    return initAll(static_cast<int>(devices.size()), devices.data());
  }

  int rank() const { return ask(ncclCommUserRank, "ncclCommUserRank"); }
  int count() const { return ask(ncclCommCount, "ncclCommCount"); }
  int device() const { return ask(ncclCommCuDevice, "ncclCommCuDevice"); }
  ncclResult_t asyncError() const {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    return state;
  }
  // Whether a non-blocking communicator has finished its latest call. Throws when it failed.
  bool isReady() const { return check(asyncError(), "communicator"); }

  // Ranks of equal colour, ordered by key. Empty for NCCL_SPLIT_NOCOLOR. Collective. Not inside a
  // Group.
  Communicator split(int color, int key) const {
    Communicator made;
    check(ncclCommSplit(comm_, color, key, &made.comm_, nullptr), "ncclCommSplit");
    return made;
  }
  // Without the excluded ranks, who do not call.
  Communicator shrink(std::span<const int> excluded, int flags = NCCL_SHRINK_DEFAULT) const {
    std::vector<int> ranks(excluded.begin(), excluded.end());
    Communicator made;
    check(ncclCommShrink(comm_, ranks.data(), static_cast<int>(ranks.size()), &made.comm_, nullptr,
                         flags),
          "ncclCommShrink");
    return made;
  }

  bool finalize() { return check(ncclCommFinalize(comm_), "ncclCommFinalize"); }
  void revoke() { check(ncclCommRevoke(comm_, NCCL_REVOKE_DEFAULT), "ncclCommRevoke"); }
  // Frees now, and tells what went wrong, which the destructor cannot.
  void destroy() { check(ncclCommDestroy(release()), "ncclCommDestroy"); }
  // Ends everything that runs in it and frees it; returns within a second whatever the peers do.
  void abort() { check(ncclCommAbort(release()), "ncclCommAbort"); }

  // A sum in which this rank's input counts `factor` times.
  template <typename T>
  ScaledSum scaledSum(T factor) const {
    ncclRedOp_t op = ncclSum;
    check(ncclRedOpCreatePreMulSum(&op, &factor, DataTypeOf<T>::value, ncclScalarHostImmediate,
                                   comm_),
          "ncclRedOpCreatePreMulSum");
    return ScaledSum(comm_, op);
  }

  // -- Operations. n is count(). Each returns whether it is finished or enqueued; false only when
  // non-blocking.

  template <Input In, Output Out>
  requires SameElements<In, Out>
  bool allReduce(const In& in, Out&& out, ncclRedOp_t op, cudaStream_t stream = nullptr) const {
    wantSize("allReduce: output", std::ranges::size(out), std::ranges::size(in));
    return check(ncclAllReduce(std::ranges::data(in), std::ranges::data(out), std::ranges::size(in),
                               typeOf<In>(), op, comm_, stream),
                 "ncclAllReduce");
  }
  template <Output InOut>
  bool allReduce(InOut&& inOut, ncclRedOp_t op, cudaStream_t stream = nullptr) const {
    return allReduce(inOut, inOut, op, stream);
  }

  // Only the root's `out` is used; elsewhere it may be empty.
  template <Input In, Output Out>
  requires SameElements<In, Out>
  bool reduce(const In& in, Out&& out, ncclRedOp_t op, int root,
              cudaStream_t stream = nullptr) const {
    if (rank() == root) wantSize("reduce: output", std::ranges::size(out), std::ranges::size(in));
    return check(ncclReduce(std::ranges::data(in), std::ranges::data(out), std::ranges::size(in),
                            typeOf<In>(), op, root, comm_, stream),
                 "ncclReduce");
  }

  // in: n * out elements.
  template <Input In, Output Out>
  requires SameElements<In, Out>
  bool reduceScatter(const In& in, Out&& out, ncclRedOp_t op, cudaStream_t stream = nullptr) const {
    wantSize("reduceScatter: input", std::ranges::size(in), times(std::ranges::size(out)));
    return check(ncclReduceScatter(std::ranges::data(in), std::ranges::data(out),
                                   std::ranges::size(out), typeOf<In>(), op, comm_, stream),
                 "ncclReduceScatter");
  }

  // out: n * in elements.
  template <Input In, Output Out>
  requires SameElements<In, Out>
  bool allGather(const In& in, Out&& out, cudaStream_t stream = nullptr) const {
    wantSize("allGather: output", std::ranges::size(out), times(std::ranges::size(in)));
    return check(ncclAllGather(std::ranges::data(in), std::ranges::data(out), std::ranges::size(in),
                               typeOf<In>(), comm_, stream),
                 "ncclAllGather");
  }

  // Only the root's `in` is used; elsewhere it may be empty.
  template <Input In, Output Out>
  requires SameElements<In, Out>
  bool broadcast(const In& in, Out&& out, int root, cudaStream_t stream = nullptr) const {
    if (rank() == root) wantSize("broadcast: input", std::ranges::size(in), std::ranges::size(out));
    return check(ncclBroadcast(std::ranges::data(in), std::ranges::data(out),
                               std::ranges::size(out), typeOf<In>(), root, comm_, stream),
                 "ncclBroadcast");
  }
  template <Output InOut>
  bool broadcast(InOut&& inOut, int root, cudaStream_t stream = nullptr) const {
    return broadcast(inOut, inOut, root, stream);
  }

  // in and out: n pieces of equal size.
  template <Input In, Output Out>
  requires SameElements<In, Out>
  bool allToAll(const In& in, Out&& out, cudaStream_t stream = nullptr) const {
    wantSize("allToAll: output", std::ranges::size(out), std::ranges::size(in));
    return check(
        ncclAlltoAll(std::ranges::data(in), std::ranges::data(out),
                     piece("allToAll: input", std::ranges::size(in)), typeOf<In>(), comm_, stream),
        "ncclAlltoAll");
  }

  // The root's out: n * in elements; elsewhere it may be empty.
  template <Input In, Output Out>
  requires SameElements<In, Out>
  bool gather(const In& in, Out&& out, int root, cudaStream_t stream = nullptr) const {
    if (rank() == root) {
      wantSize("gather: output", std::ranges::size(out), times(std::ranges::size(in)));
    }
    return check(ncclGather(std::ranges::data(in), std::ranges::data(out), std::ranges::size(in),
                            typeOf<In>(), root, comm_, stream),
                 "ncclGather");
  }

  // The root's in: n * out elements; elsewhere it may be empty.
  template <Input In, Output Out>
  requires SameElements<In, Out>
  bool scatter(const In& in, Out&& out, int root, cudaStream_t stream = nullptr) const {
    if (rank() == root) {
      wantSize("scatter: input", std::ranges::size(in), times(std::ranges::size(out)));
    }
    return check(ncclScatter(std::ranges::data(in), std::ranges::data(out), std::ranges::size(out),
                             typeOf<In>(), root, comm_, stream),
                 "ncclScatter");
  }

  template <Input In>
  bool send(const In& in, int peer, cudaStream_t stream = nullptr) const {
    return check(
        ncclSend(std::ranges::data(in), std::ranges::size(in), typeOf<In>(), peer, comm_, stream),
        "ncclSend");
  }
  template <Output Out>
  bool recv(Out&& out, int peer, cudaStream_t stream = nullptr) const {
    return check(ncclRecv(std::ranges::data(out), std::ranges::size(out), typeOf<Out>(), peer,
                          comm_, stream),
                 "ncclRecv");
  }

  ncclComm_t get() const { return comm_; }
  // Gives the handle up: the caller destroys it.
  ncclComm_t release() { return std::exchange(comm_, nullptr); }
  explicit operator bool() const { return comm_ != nullptr; }

 private:
  static std::vector<Communicator> initAll(int count, const int* devices) {
    std::vector<ncclComm_t> handles(static_cast<size_t>(count > 0 ? count : 0));
    check(ncclCommInitAll(handles.data(), count, devices), "ncclCommInitAll");
    std::vector<Communicator> made(handles.size());
    for (size_t i = 0; i < handles.size(); ++i) made[i].comm_ = handles[i];
    return made;
  }

  int ask(ncclResult_t (*query)(ncclComm_t, int*), const char* call) const {
    int answer = 0;
    check(query(comm_, &answer), call);
    return answer;
  }

  template <typename R>
  static constexpr ncclDataType_t typeOf() {
    return DataTypeOf<std::ranges::range_value_t<R>>::value;
  }

  static void wantSize(const char* what, size_t seen, size_t wanted) {
    if (seen == wanted) return;
    throw Error(ncclInvalidArgument, std::string(what) + " has " + std::to_string(seen) +
                                         " elements, wanted " + std::to_string(wanted));
  }
  size_t times(size_t elements) const { return elements * static_cast<size_t>(count()); }
  size_t piece(const char* what, size_t elements) const {
    const size_t ranks = static_cast<size_t>(count());
    wantSize(what, elements, elements / ranks * ranks);
    return elements / ranks;
  }

  ncclComm_t comm_ = nullptr;
};

}  // namespace v0
}  // namespace tutti
