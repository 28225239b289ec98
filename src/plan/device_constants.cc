#include "plan/device_constants.h"

#include "base/log.h"

namespace tutti::plan {
namespace {

// CPU ranks, 2 to 8 on 2 CPUs and 2 to 16 on 16. A file as `choice_bench --prices` and `tutti tune`
// write it; docs/results/2026-11-21-choice.md has the measurement, the commands
// and how well these prices choose.
constexpr std::string_view kCpuRanks = R"(tutti tuning 3
machine VMs of 2 and of 16 CPUs, Intel Xeon, Debian 12
date 2026-11-21
how choice_bench, two measurements of 60 and two of 25 rounds
cpus 2
prices AllReduce processes doubling call 0 hop 0 line 0.07227 message 0.2139 slot_mb 151.6 referenced_mb 0
prices AllReduce processes oneshot call 0.07953 hop 0.0223 line 0.07227 message 0.1259 slot_mb 147.6 referenced_mb 0
prices AllReduce processes pat call 0.07093 hop 0.01943 line 0.09628 message 0.1507 slot_mb 155.2 referenced_mb 0
prices AllReduce processes ring call 0 hop 0 line 0.1318 message 0.1975 slot_mb 134.6 referenced_mb 0
prices AllReduce processes tree call 0 hop 0.01542 line 0.3185 message 0.353 slot_mb 209.5 referenced_mb 0
prices AllReduce processes twoshot call 0.2579 hop 0.02598 line 0.05706 message 0.09059 slot_mb 160.5 referenced_mb 0
prices AllReduce threads doubling call 0 hop 0 line 0.06625 message 0.2166 slot_mb 151.2 referenced_mb 44.29
prices AllReduce threads oneshot call 0.0696 hop 0.02682 line 0.06625 message 0.1246 slot_mb 140.9 referenced_mb 44.29
prices AllReduce threads pat call 0.052 hop 0.01678 line 0.09848 message 0.1512 slot_mb 146.9 referenced_mb 44.29
prices AllReduce threads ring call 0 hop 0 line 0.1366 message 0.2023 slot_mb 132.1 referenced_mb 44.29
prices AllReduce threads tree call 0 hop 0.01523 line 0.3052 message 0.3462 slot_mb 196.7 referenced_mb 44.29
prices AllReduce threads twoshot call 0.1111 hop 0.06665 line 0.0565 message 0.08894 slot_mb 151.4 referenced_mb 70.85
prices AllGather processes direct call 0.0586 hop 0.02783 line 0.08866 message 0.1137 slot_mb 146.5 referenced_mb 0
prices AllGather processes pat call 0.005742 hop 0.02609 line 0.1053 message 0.1665 slot_mb 140.8 referenced_mb 0
prices AllGather processes ring call 0 hop 0.02946 line 0.1069 message 0.1793 slot_mb 141 referenced_mb 0
prices AllGather threads direct call 0.06585 hop 0.0287 line 0.07601 message 0.09438 slot_mb 156.1 referenced_mb 45.09
prices AllGather threads pat call 0.02134 hop 0.01451 line 0.09844 message 0.147 slot_mb 155.7 referenced_mb 62.6
prices AllGather threads ring call 0 hop 0.01089 line 0.1114 message 0.1768 slot_mb 155.1 referenced_mb 67.26
prices ReduceScatter processes direct call 0.1069 hop 0.04439 line 0.05706 message 0.09066 slot_mb 155.9 referenced_mb 0
prices ReduceScatter processes pat call 0.02356 hop 0.01391 line 0.107 message 0.161 slot_mb 143.6 referenced_mb 0
prices ReduceScatter processes ring call 0 hop 0 line 0.1266 message 0.2058 slot_mb 138.3 referenced_mb 0
prices ReduceScatter threads direct call 0.08219 hop 0.04277 line 0.06138 message 0.08709 slot_mb 153.9 referenced_mb 41.01
prices ReduceScatter threads pat call 0.0231 hop 0.004829 line 0.1101 message 0.161 slot_mb 129.7 referenced_mb 44.29
prices ReduceScatter threads ring call 0 hop 0 line 0.1277 message 0.2062 slot_mb 116.9 referenced_mb 44.29
prices Broadcast processes direct call 0 hop 0 line 0.07227 message 0.129 slot_mb 80.01 referenced_mb 0
prices Broadcast processes ring call 0.003042 hop 0.01074 line 0.07227 message 0.1058 slot_mb 115.7 referenced_mb 0
prices Broadcast processes tree call 0 hop 0 line 0.08055 message 0.1601 slot_mb 121.4 referenced_mb 0
prices Broadcast processes twoshot call 0 hop 0.0113 line 0.03333 message 0.1127 slot_mb 123.3 referenced_mb 0
prices Broadcast threads direct call 0.01985 hop 0 line 0.06625 message 0.1219 slot_mb 85.65 referenced_mb 44.57
prices Broadcast threads ring call 0.04386 hop 0.01128 line 0.06625 message 0.08338 slot_mb 113.5 referenced_mb 41.59
prices Broadcast threads tree call 0 hop 0 line 0.07181 message 0.1627 slot_mb 126.2 referenced_mb 52.26
prices Broadcast threads twoshot call 0.02079 hop 0.01003 line 0.02902 message 0.09693 slot_mb 133.7 referenced_mb 47.01
prices Reduce processes direct call 0 hop 0.09082 line 0.07227 message 0.05511 slot_mb 65.86 referenced_mb 0
prices Reduce processes ring call 0 hop 0.02774 line 0.07227 message 0.115 slot_mb 101.5 referenced_mb 0
prices Reduce processes tree call 0 hop 0 line 0.1057 message 0.1849 slot_mb 100.2 referenced_mb 0
prices Reduce processes twoshot call 0.3089 hop 0.06022 line 0.04349 message 0.08847 slot_mb 172.8 referenced_mb 0
prices Reduce threads direct call 0.02516 hop 0.08208 line 0.06625 message 0.05385 slot_mb 64.68 referenced_mb 33.68
prices Reduce threads ring call 0 hop 0.01563 line 0.06625 message 0.1406 slot_mb 94.62 referenced_mb 44.29
prices Reduce threads tree call 0 hop 0 line 0.09647 message 0.1956 slot_mb 96.34 referenced_mb 44.29
prices Reduce threads twoshot call 0.1371 hop 0.1024 line 0.04269 message 0.0955 slot_mb 158.2 referenced_mb 44.29
prices AlltoAll processes direct call 0 hop 0.02335 line 0.1209 message 0.1354 slot_mb 139.2 referenced_mb 0
prices AlltoAll processes pairwise call 0 hop 0.3509 line 0 message 0.07601 slot_mb 138.5 referenced_mb 0
prices AlltoAll threads direct call 0 hop 0.06933 line 0.09994 message 0.1057 slot_mb 163.1 referenced_mb 54.59
prices AlltoAll threads pairwise call 0 hop 0.3281 line 0 message 0.04846 slot_mb 201.6 referenced_mb 61
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
