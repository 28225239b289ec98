// MSCCL XML: programs that other libraries can run on GPUs. A thread block there has one peer each
// way, so the lanes of rings fit; the vector is cut into chunks, a column of them a channel.
#include <algorithm>

#include "sim/export_internal.h"

namespace tutti::sim {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::Step;

constexpr size_t kMostSteps = 256;       // of a thread block
constexpr int32_t kMostOffset = 32'767;  // 16 bits

struct Place16 {
  char buffer = 'i';
  int32_t offset = 0;
};

struct XmlStep {
  std::string type;
  Place16 source{};
  Place16 destination{};
};

class LaneWriter {
 public:
  LaneWriter(const Traffic& traffic, int32_t channel, Rank rank)
      : traffic_(traffic), channel_(channel), lane_(traffic.lane(channel, rank)) {}

  Result<std::string> run() {
    const auto& program = *lane_.program;
    if (program.sendsTo.size() > 1 || program.receivesFrom.size() > 1)
      return invalidArgument(
          "msccl: {} of {} has several peers a lane; a thread block has one each way, so only "
          "rings "
          "can be written",
          traffic_.method().algorithm, name(traffic_.call().collective));
    for (const Step& step : program.steps) TUTTI_TRY(add(step));
    if (steps_.size() > kMostSteps)
      return invalidArgument("msccl: {} steps a thread block, {} are allowed: fewer ranks",
                             steps_.size(), kMostSteps);
    const auto peer = [](const std::vector<Rank>& peers) {
      return peers.empty() ? -1 : index(peers.front());
    };
    std::string text =
        fmt::format("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">\n", channel_,
                    peer(program.sendsTo), peer(program.receivesFrom), channel_);
    for (size_t i = 0; i < steps_.size(); ++i) {
      const XmlStep& step = steps_[i];
      text += fmt::format(
          "      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" "
          "dstoff=\"{}\" "
          "cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n",
          i, step.type, step.source.buffer, step.source.offset, step.destination.buffer,
          step.destination.offset);
    }
    return text + "    </tb>\n";
  }

 private:
  // A chunk of the vector in the buffer that a rank has of it.
  Result<Place16> placeOf(const Operand& operand) const {
    const bool isInput = operand.place == Place::kInput;
    const int32_t first = (isInput ? lane_.layout.firstInputBlock : lane_.layout.firstOutputBlock) *
                          lane_.layout.chunksPerBlock;
    const int32_t offset = (operand.index - first) * traffic_.channelCount() + channel_;
    if (offset < 0 || offset > kMostOffset)
      return invalidArgument("msccl: chunk {} lies at {}, offsets go to {}", operand.index, offset,
                             kMostOffset);
    return Place16{isInput ? 'i' : 'o', offset};
  }

  Status add(const Step& step) {
    const auto operands = lane_.program->allOperands(step);
    bool receives = false, sends = false;
    std::optional<Place16> own, kept;
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool isSource = i < step.sourceCount;
      if (operands[i].place == Place::kLink) {
        (isSource ? receives : sends) = true;
        continue;
      }
      TUTTI_TRY_ASSIGN(const Place16 place, placeOf(operands[i]));
      (isSource ? own : kept) = place;
    }
    if (receives && own) {
      const char* type = sends ? (kept ? "rrcs" : "rrs") : "rrc";
      steps_.push_back({type, *own, kept.value_or(*own)});
    } else if (receives) {
      steps_.push_back({sends ? "rcs" : "r", kept.value_or(Place16{}), kept.value_or(Place16{})});
    } else {
      if (kept) steps_.push_back({"cpy", own.value_or(*kept), *kept});
      if (sends) steps_.push_back({"s", own.value_or(Place16{}), own.value_or(Place16{})});
    }
    return {};
  }

  const Traffic& traffic_;
  int32_t channel_;
  Lane lane_;
  std::vector<XmlStep> steps_;
};

Result<std::string_view> collectiveName(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce: return std::string_view("allreduce");
    case Collective::kAllGather: return std::string_view("allgather");
    case Collective::kReduceScatter: return std::string_view("reduce_scatter");
    case Collective::kBroadcast: return std::string_view("broadcast");
    case Collective::kReduce: return std::string_view("reduce");
    case Collective::kAllToAll: return std::string_view("alltoall");
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kSend:
    case Collective::kRecv: break;
  }
  return invalidArgument("msccl: it has no {}", name(collective));
}

}  // namespace

Status writeMsccl(const FlowTable& table, const Sink& sink) {
  const Traffic& traffic = table.traffic();
  const Collective collective = traffic.call().collective;
  const int32_t ranks = traffic.rankCount(), channels = traffic.channelCount();
  TUTTI_TRY_ASSIGN(const std::string_view wanted, collectiveName(collective));
  const int32_t all = traffic.chunkCount() * channels;
  const int32_t block = all / schedule::blockCount(collective, ranks);
  const int32_t inputs = collective == Collective::kAllGather ? block : all;
  const int32_t outputs = collective == Collective::kReduceScatter ? block : all;
  TUTTI_TRY(sink(
      "", fmt::format("<algo name=\"tutti_{}_{}\" proto=\"{}\" nchannels=\"{}\" "
                      "nchunksperloop=\"{}\" ngpus=\"{}\" coll=\"{}\" inplace=\"1\" "
                      "outofplace=\"1\" minBytes=\"0\" maxBytes=\"{}\">\n",
                      traffic.method().algorithm, wanted, graph::nameOf(traffic.method().protocol),
                      channels, all, ranks, wanted, INT64_MAX)));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    std::string text =
        fmt::format("  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"0\">\n", rank,
                    inputs, outputs);
    for (int32_t channel = 0; channel < channels; ++channel) {
      TUTTI_TRY_ASSIGN(const std::string lane, LaneWriter(traffic, channel, Rank{rank}).run());
      text += lane;
    }
    TUTTI_TRY(sink("", text + "  </gpu>\n"));
  }
  return sink("", "</algo>\n");
}

}  // namespace tutti::sim
