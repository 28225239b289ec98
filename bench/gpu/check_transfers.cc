#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "check_parts.h"
#include "data.h"

namespace tutti::bench {

// In turn: everybody sends to everybody, each rank to the next, and rank 0 and the others to each
// other. Sizes by pair and round.
int checkTransfers(Team& team, bool isShort) {
  std::atomic<int> failures{0};
  const int ranks = team.ranks();
  const auto doesSend = [&](int from, int to, int round) {
    if (round % 3 == 1) return to == (from + 1) % ranks;
    return round % 3 == 0 || from == 0 || to == 0;
  };
  const auto bytesOf = [&](int from, int to, int round) -> uint64_t {
    constexpr uint64_t kSizes[] = {1, 1000, 8192, 70'001, 1'000'003, 5'000'000};
    const bool isLong = round % 3 != 0 && round % 6 < 3;
    const auto which = static_cast<size_t>(from * 3 + to * 5 + round) % (isShort ? 4 : 6);
    return kSizes[isLong ? 4 + which % 2 : which] + static_cast<uint64_t>(round);
  };
  const int rounds = isShort ? 8 : 24;
  team.run([&](Member& member) {
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    std::vector<std::pair<Bytes, std::pair<DeviceBuffer*, size_t>>> wanted;
    std::vector<std::vector<Member::Transfer>> launches;
    for (int round = 0; round < rounds; ++round) {
      std::vector<Member::Transfer>& list = launches.emplace_back();
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == member.rank()) continue;
        const size_t shift = static_cast<size_t>(round % 3);
        const auto seed = [&](int from, int to) {
          return static_cast<uint64_t>((round * 8 + from) * 8 + to);
        };
        const uint64_t out = bytesOf(member.rank(), peer, round);
        const uint64_t in = bytesOf(peer, member.rank(), round);
        if (doesSend(member.rank(), peer, round)) {
          buffers.push_back(std::make_unique<DeviceBuffer>(out + 16));
          const Bytes data = makeData(DataType::kInt8, out, seed(member.rank(), peer));
          TUTTI_CU(cuMemcpyHtoD(buffers.back()->address() + shift, data.data(), out));
          list.push_back({true, peer, buffers.back()->at(shift), out});
        }
        if (!doesSend(peer, member.rank(), round)) continue;
        buffers.push_back(std::make_unique<DeviceBuffer>(in + 16));
        TUTTI_CU(cuMemsetD8(buffers.back()->address(), 0xa5, in + 16));
        list.push_back({false, peer, buffers.back()->at(shift), in});
        wanted.push_back({makeData(DataType::kInt8, in, seed(peer, member.rank())),
                          {buffers.back().get(), shift}});
      }
    }
    TUTTI_CU(cuCtxSynchronize());
    team.meet();
    for (const auto& list : launches) member.transfer(list);
    member.synchronize();
    team.meet();
    if (member.error().fault != 0) {
      std::printf("FAIL rank %d: transfers: fault %u awaiting rank %d\n", member.rank(),
                  member.error().fault, member.error().peer);
      ++failures;
      return;
    }
    for (const auto& [data, where] : wanted) {
      Bytes got(data.size() + 1);
      TUTTI_CU(cuMemcpyDtoH(got.data(), where.first->address() + where.second, got.size()));
      if (std::memcmp(got.data(), data.data(), data.size()) != 0 || got.back() != kPoison) {
        std::printf("FAIL rank %d: received %zu bytes wrong\n", member.rank(), data.size());
        ++failures;
      }
    }
  });
  return failures;
}

}  // namespace tutti::bench
