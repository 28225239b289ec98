#include "plan/device_constants.h"

#include "base/log.h"

namespace tutti::plan {
namespace {

// CPU ranks, 2, 4 and 8 on 2 CPUs of an Intel Xeon VM, Debian 12, that others used meanwhile. A
// file as `tutti tune` writes it; docs/results/2026-11-21-choice.md has the measurement and how
// well these prices choose.
constexpr std::string_view kCpuRanks = R"(tutti tuning 2
machine 2 CPUs of an Intel Xeon VM, Debian 12
date 2026-11-21
how choice_bench, two measurements of 40 and 60 rounds
cpus 2
prices AllReduce threads ring call 0.09769 hop 0.1159 line 0.1159 message 0.1709 slot_mb 99.94 referenced_mb 115.6
prices AllReduce threads oneshot call 0.2079 hop 0.1378 line 0.04316 message 0.1324 slot_mb 129.9 referenced_mb 133.4
prices AllReduce threads twoshot call 0.164 hop 0.1665 line 0.05654 message 0.1134 slot_mb 163.4 referenced_mb 61.95
prices AllReduce threads tree call 0.05503 hop 0.2183 line 0.1589 message 0.228 slot_mb 180.2 referenced_mb 137.3
prices AllReduce threads doubling call 0 hop 0.09332 line 0.04316 message 0.3088 slot_mb 149.6 referenced_mb 148.2
prices AllReduce threads pat call 0.1081 hop 0.1026 line 0.09558 message 0.1846 slot_mb 143.8 referenced_mb 136.5
prices AllReduce processes ring call 0.007234 hop 0.08726 line 0.1315 message 0.2122 slot_mb 125.1 referenced_mb 0
prices AllReduce processes oneshot call 0.0114 hop 0.1825 line 0.05384 message 0.1936 slot_mb 145.5 referenced_mb 0
prices AllReduce processes twoshot call 0.01058 hop 0.2133 line 0.06314 message 0.1469 slot_mb 158 referenced_mb 0
prices AllReduce processes tree call 0.0082 hop 0.1922 line 0.2067 message 0.2966 slot_mb 170.3 referenced_mb 0
prices AllReduce processes doubling call 0.004251 hop 0.07647 line 0.05384 message 0.2874 slot_mb 159 referenced_mb 0
prices AllReduce processes pat call 0.008651 hop 0.08048 line 0.1331 message 0.2323 slot_mb 154.8 referenced_mb 0
prices AllGather threads ring call 0 hop 0.1033 line 0.1005 message 0.1641 slot_mb 112.4 referenced_mb 58.62
prices AllGather threads direct call 0.05549 hop 0.04598 line 0.09655 message 0.1147 slot_mb 158.1 referenced_mb 41.48
prices AllGather threads pat call 0 hop 0.01241 line 0.1443 message 0.1812 slot_mb 146.1 referenced_mb 54.43
prices AllGather processes ring call 0.004177 hop 0.08236 line 0.1492 message 0.1964 slot_mb 130 referenced_mb 0
prices AllGather processes direct call 0.008912 hop 0.05303 line 0.1484 message 0.1652 slot_mb 157.2 referenced_mb 0
prices AllGather processes pat call 0.006227 hop 0.02669 line 0.1816 message 0.2145 slot_mb 151 referenced_mb 0
prices ReduceScatter threads ring call 0.02104 hop 0.1355 line 0.1356 message 0.1832 slot_mb 97.47 referenced_mb 108.5
prices ReduceScatter threads direct call 0.09477 hop 0.06965 line 0.1265 message 0.1286 slot_mb 155.8 referenced_mb 40.6
prices ReduceScatter threads pat call 0 hop 0.09155 line 0.173 message 0.205 slot_mb 117.5 referenced_mb 129.9
prices ReduceScatter processes ring call 0.007424 hop 0.1183 line 0.1936 message 0.22 slot_mb 119.2 referenced_mb 0
prices ReduceScatter processes direct call 0.009802 hop 0.09935 line 0.1526 message 0.1584 slot_mb 143.7 referenced_mb 0
prices ReduceScatter processes pat call 0.006121 hop 0.03237 line 0.2084 message 0.2369 slot_mb 134.9 referenced_mb 0
prices Broadcast threads ring call 0.05983 hop 0.01054 line 0.04316 message 0.07932 slot_mb 78.87 referenced_mb 41.35
prices Broadcast threads direct call 0.1529 hop 0.1047 line 0.04316 message 0.01074 slot_mb 26.86 referenced_mb 6.61
prices Broadcast threads twoshot call 0 hop 0.08768 line 0.009806 message 0.07347 slot_mb 115.4 referenced_mb 40.17
prices Broadcast threads tree call 0 hop 0.04897 line 0.03056 message 0.1071 slot_mb 103.1 referenced_mb 41.48
prices Broadcast processes ring call 0.008495 hop 0.01849 line 0.05384 message 0.08966 slot_mb 91.78 referenced_mb 0
prices Broadcast processes direct call 0.01114 hop 0.1689 line 0.05384 message 0.0242 slot_mb 31.91 referenced_mb 0
prices Broadcast processes twoshot call 0.003712 hop 0.06942 line 0.01434 message 0.0888 slot_mb 113.2 referenced_mb 0
prices Broadcast processes tree call 0.001516 hop 0.1166 line 0 message 0.06736 slot_mb 111.5 referenced_mb 0
prices Reduce threads ring call 0.04488 hop 0.108 line 0.04316 message 0.04627 slot_mb 70.87 referenced_mb 91.29
prices Reduce threads direct call 0.1611 hop 0.1096 line 0.04316 message 0.01475 slot_mb 22.33 referenced_mb 11.01
prices Reduce threads twoshot call 0.1579 hop 0.1593 line 0.0815 message 0.1902 slot_mb 134.2 referenced_mb 135.6
prices Reduce threads tree call 0 hop 0.2134 line 0.006053 message 0.05685 slot_mb 100.4 referenced_mb 95.42
prices Reduce processes ring call 0.01031 hop 0.1179 line 0.05384 message 0.07085 slot_mb 94.92 referenced_mb 0
prices Reduce processes direct call 0.01236 hop 0.2326 line 0.05384 message 0.03245 slot_mb 26.3 referenced_mb 0
prices Reduce processes twoshot call 0.01027 hop 0.1818 line 0.1077 message 0.2166 slot_mb 159.5 referenced_mb 0
prices Reduce processes tree call 0.00367 hop 0.2172 line 0 message 0.0808 slot_mb 104.2 referenced_mb 0
prices AlltoAll threads pairwise call 0.03202 hop 0.1178 line 0.05477 message 0.08292 slot_mb 155.9 referenced_mb 52.07
prices AlltoAll threads direct call 0.01125 hop 0.01934 line 0.1203 message 0.1519 slot_mb 159.8 referenced_mb 51.74
prices AlltoAll processes pairwise call 0.00666 hop 0.1405 line 0.07866 message 0.08997 slot_mb 161.4 referenced_mb 0
prices AlltoAll processes direct call 0.006116 hop 0 line 0.158 message 0.1747 slot_mb 160.7 referenced_mb 0
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
