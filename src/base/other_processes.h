// For ThreadSanitizer, which sees one process: threads of it may be put in order by way of others.
// Rank 0 writes and sends to rank 2, of another process, which sends to rank 1: what rank 1 reads
// then is no race. Empty in every other build.
#pragma once

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace tutti {

#ifdef __SANITIZE_THREAD__
// All other processes are one: who has sent anything there comes before who hears of it later.
inline constexpr char kOtherProcesses = 0;  // its address is what counts
inline void tellOtherProcesses() { __tsan_release(const_cast<char*>(&kOtherProcesses)); }
inline void hearOtherProcesses() { __tsan_acquire(const_cast<char*>(&kOtherProcesses)); }
#else
inline void tellOtherProcesses() {}
inline void hearOtherProcesses() {}
#endif

}  // namespace tutti
