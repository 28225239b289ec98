#include "plan/device_constants.h"

#include "base/log.h"

namespace tutti::plan {
namespace {

// CPU ranks, 2, 4 and 8 on 2 CPUs of an Intel Xeon VM, Debian 12. A file as `choice_bench --prices`
// and `tutti tune` write it; docs/results/2026-11-21-choice.md has the measurement, the commands
// and how well these prices choose.
constexpr std::string_view kCpuRanks = R"(tutti tuning 3
machine 2 CPUs of an Intel Xeon VM, Debian 12
date 2026-11-21
how choice_bench, four measurements of 60 rounds
cpus 2
prices AllReduce processes doubling call 0 hop 0.005936 line 0.06959 message 0.2324 slot_mb 135.3 referenced_mb 0
prices AllReduce processes oneshot call 0.02593 hop 0.007792 line 0.06959 message 0.1595 slot_mb 126.14 referenced_mb 0
prices AllReduce processes pat call 0 hop 0.002146 line 0.132 message 0.1903 slot_mb 135.1 referenced_mb 0
prices AllReduce processes ring call 0 hop 0.004936 line 0.1407 message 0.1972 slot_mb 110.3 referenced_mb 0
prices AllReduce processes tree call 0 hop 0.005162 line 0.379 message 0.3545 slot_mb 177.92 referenced_mb 0
prices AllReduce processes twoshot call 0.2073 hop 0.009128 line 0.06461 message 0.1151 slot_mb 138 referenced_mb 0
prices AllReduce threads doubling call 0 hop 0.008029 line 0.06067 message 0.2281 slot_mb 135.6 referenced_mb 43.02
prices AllReduce threads oneshot call 0.01721 hop 0.03862 line 0.06067 message 0.1381 slot_mb 121.6 referenced_mb 43.02
prices AllReduce threads pat call 0.006795 hop 0.007162 line 0.1163 message 0.1697 slot_mb 129.1 referenced_mb 43.02
prices AllReduce threads ring call 0.0009431 hop 0.004667 line 0.1445 message 0.1879 slot_mb 110.77 referenced_mb 43.02
prices AllReduce threads tree call 0.0008741 hop 0.01092 line 0.331 message 0.3442 slot_mb 165.62 referenced_mb 43.02
prices AllReduce threads twoshot call 0.01842 hop 0.07158 line 0.06571 message 0.1009 slot_mb 132 referenced_mb 59.97
prices AllGather processes direct call 0.03314 hop 0.009083 line 0.1112 message 0.1309 slot_mb 120.5 referenced_mb 0
prices AllGather processes pat call 0 hop 0.003295 line 0.1417 message 0.19 slot_mb 117.1 referenced_mb 0
prices AllGather processes ring call 0 hop 0.01082 line 0.1399 message 0.1981 slot_mb 113 referenced_mb 0
prices AllGather threads direct call 0.01782 hop 0.04406 line 0.09047 message 0.1019 slot_mb 131.8 referenced_mb 42.57
prices AllGather threads pat call 0 hop 0 line 0.1373 message 0.1749 slot_mb 116.6 referenced_mb 55.01
prices AllGather threads ring call 0 hop 0.01303 line 0.1362 message 0.1925 slot_mb 105.8 referenced_mb 59.45
prices ReduceScatter processes direct call 0.01897 hop 0.008654 line 0.1228 message 0.1314 slot_mb 123.4 referenced_mb 0
prices ReduceScatter processes pat call 0 hop 0 line 0.1524 message 0.1961 slot_mb 118.3 referenced_mb 0
prices ReduceScatter processes ring call 0 hop 0.004921 line 0.1539 message 0.2082 slot_mb 112.4 referenced_mb 0
prices ReduceScatter threads direct call 0.01583 hop 0.03924 line 0.1028 message 0.107 slot_mb 125 referenced_mb 36.65
prices ReduceScatter threads pat call 0 hop 0 line 0.1493 message 0.173 slot_mb 108.9 referenced_mb 43.02
prices ReduceScatter threads ring call 0 hop 0.001133 line 0.1519 message 0.1969 slot_mb 97.64 referenced_mb 43.02
prices Broadcast processes direct call 0 hop 0 line 0.06959 message 0.136 slot_mb 70.65 referenced_mb 0
prices Broadcast processes ring call 0 hop 0.01069 line 0.06959 message 0.09853 slot_mb 102.6 referenced_mb 0
prices Broadcast processes tree call 0 hop 0.001137 line 0.06743 message 0.1394 slot_mb 112.4 referenced_mb 0
prices Broadcast processes twoshot call 0 hop 0.01995 line 0.02212 message 0.09996 slot_mb 113.8 referenced_mb 0
prices Broadcast threads direct call 0 hop 0 line 0.06067 message 0.1431 slot_mb 68.81 referenced_mb 40.57
prices Broadcast threads ring call 0.0007241 hop 0.002046 line 0.06067 message 0.1308 slot_mb 83.03 referenced_mb 46.63
prices Broadcast threads tree call 0 hop 0 line 0.0607 message 0.1485 slot_mb 109.7 referenced_mb 45.32
prices Broadcast threads twoshot call 0 hop 0.04417 line 0.01472 message 0.08172 slot_mb 118.8 referenced_mb 42.38
prices Reduce processes direct call 0 hop 0 line 0.06959 message 0.1567 slot_mb 65.94 referenced_mb 0
prices Reduce processes ring call 0 hop 0.04211 line 0.06959 message 0.0964 slot_mb 93.69 referenced_mb 0
prices Reduce processes tree call 0 hop 0.003894 line 0.09913 message 0.1724 slot_mb 95.23 referenced_mb 0
prices Reduce processes twoshot call 0.3607 hop 0.009325 line 0.09217 message 0.1317 slot_mb 141.8 referenced_mb 0
prices Reduce threads direct call 0.0006806 hop 0.003152 line 0.06067 message 0.1569 slot_mb 66.8 referenced_mb 34.65
prices Reduce threads ring call 0.003111 hop 0.03657 line 0.06067 message 0.1167 slot_mb 87.79 referenced_mb 43.02
prices Reduce threads tree call 0 hop 0.001246 line 0.09477 message 0.1924 slot_mb 89.94 referenced_mb 43.02
prices Reduce threads twoshot call 0.02286 hop 0.09609 line 0.07698 message 0.1394 slot_mb 132.1 referenced_mb 43.02
prices AlltoAll processes direct call 0 hop 0.005435 line 0.1324 message 0.1645 slot_mb 125.2 referenced_mb 0
prices AlltoAll processes pairwise call 0 hop 0.008182 line 0.1287 message 0.1609 slot_mb 119.8 referenced_mb 0
prices AlltoAll threads direct call 0.01158 hop 0.02325 line 0.104 message 0.1308 slot_mb 153.5 referenced_mb 48.71
prices AlltoAll threads pairwise call 0.0162 hop 0.01081 line 0.1027 message 0.1289 slot_mb 153.3 referenced_mb 48.71
)";

}  // namespace

const Tuning& builtInTuning() {
  static const Tuning tuning = [] {
    Result<Tuning> parsed = parseTuning(kCpuRanks, "the built-in prices");
    if (!parsed.ok()) log::warn("{}", parsed.status().message());
    return parsed.ok() ? std::move(parsed).value() : Tuning{};
  }();
  return tuning;
}

}  // namespace tutti::plan
