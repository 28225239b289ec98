// How long the messages are into which a chunk is cut. Pure, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::plan {

// From this many bytes a message on, one read from the sender's buffer beats a copy into a slot and
// out of it (pieces.cc says how that was measured).
inline constexpr size_t kDirectMinBytes = 32 * 1024;

// Where the kernel copies between processes, from this on it may; trials on the calls themselves
// tell.
inline constexpr size_t kKernelMinBytes = 12 * 1024;
// The same where ranks share CPUs, but for exchanges: a sender that waits for its readers yields to
// each of them, and trials on calls of a crowd are noisy. All-gathers of 256 KiB and 1 MiB in all
// by 4 and 8 ranks on 2 CPUs: copies 0.35 to 0.7 of the time; of 16 MiB by 8 ranks 1.2 (AMD EPYC
// VM, 2026-11-25). All-to-alls where reads are fast: by 3 and 4 ranks, 192 KiB to 4 MiB in all,
// copies take 1.1 to 1.5 of the time, 48 KiB 0.95 (2 CPUs of an Intel Xeon VM, 2026-11-29).
inline constexpr size_t kKernelCrowdedMinBytes = 512 * 1024;
// And of all-gathers by two ranks a CPU, since reads longer than a slot are tried, too. While the
// CPUs share no cache copies take 1.65 of the time of 1 MiB in all, 1.35 of 256 KiB, but while they
// do 1.0 and 0.75 (AMD EPYC VM, 2026-11-30).
inline constexpr size_t kKernelGatherMinBytes = 256 * 1024;
// Of all such ranks' vectors together, where reads are not fast: all-gathers, and all-to-alls.
inline constexpr size_t kKernelSlowGatherMostBytes = 16 * 1024 * 1024;
inline constexpr size_t kKernelSlowExchangeMostBytes = 64 * 1024 * 1024;

// And from this on it does, of sends, broadcasts, scatters and gathers that take one hop and whose
// ranks have a CPU each: broadcasts of 128 KiB to 16 MiB take 0.73 to 0.87 of the time with pieces
// of 64 KiB, which are tried against copies (2 ranks, 2026-11-22); round trips of 128 KiB to 1 MiB
// 0.8 to 0.9 (2026-11-29).
inline constexpr size_t kKernelLongMinBytes = 128 * 1024;
// Up to so long vectors: what no cache holds goes faster as copies that are stored past the caches
// (64 MiB: references 1.3 to 1.7).
inline constexpr size_t kKernelLongMaxBytes = 16 * 1024 * 1024;

// A piece of what is read by the kernel and copied nowhere else: of the time of 128 KiB, broadcasts
// of 256 KiB and 1 MiB take 0.83 and 0.76 (2 ranks, 2026-11-29).
inline constexpr size_t kLongReadBytes = 512 * 1024;

struct Piecing {
  uint32_t slotBytes = 0;  // a message's most
  bool isCrowded = false;  // ranks share CPUs
  bool isOneHost = true;
};
size_t pieceBytesFor(size_t chunkBytes, const Piecing& piecing);

// Of messages that are references between threads.
size_t directPieceBytes(size_t chunkBytes);

// Between processes of one host.
size_t processPieceBytes(size_t chunkBytes, const Piecing& piecing);

// What a network gathers or scatters at a time, of all of so many hosts together, and of each at
// most.
size_t networkSetBytes(size_t slotBytes, size_t hostCount);
size_t networkPieceBytes(size_t slotBytes, size_t hostCount);

}  // namespace tutti::plan
