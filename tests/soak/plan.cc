#include "plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "random.h"
#include "values.h"

namespace tutti::soak {
namespace {

using Kind = Action::Kind;

constexpr size_t kFewRanks = 8;
constexpr size_t kMaxRanks = 24;  // more processes than that starve on small machines
constexpr size_t kMaxTeams = 12;

const std::vector<ncclDataType_t> kTypes = {
    ncclInt8,    ncclUint8,   ncclInt32,   ncclUint32,   ncclInt64,      ncclUint64,
    ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};

// One round of one seed.
class Drawer {
 public:
  Drawer(Random& random, const Plan& plan, bool mayEndInDeath)
      : random_(random), plan_(plan), mayEndInDeath_(mayEndInDeath) {}

  Round draw() {
    round_.idCount = random_.oneIn(3) ? 1 + random_.intBelow(plan_.processOfRank.size()) : 1;
    Team everyone;
    everyone.members.resize(plan_.processOfRank.size());
    std::iota(everyone.members.begin(), everyone.members.end(), 0);
    addTeam(std::move(everyone));
    const size_t before = 3 + random_.below(10);
    for (size_t i = 0; i < before; ++i) add();
    if (mayEndInDeath_ && plan_.processCount > 1 && random_.oneIn(2)) {
      addDeath();
      const size_t after = 1 + random_.below(4);
      for (size_t i = 0; i < after; ++i) add();
    }
    return std::move(round_);
  }

 private:
  int addTeam(Team team) {
    round_.teams.push_back(std::move(team));
    alive_.push_back(static_cast<int>(round_.teams.size()) - 1);
    return alive_.back();
  }
  void endTeam(int team) { std::erase(alive_, team); }
  const Team& teamAt(int team) const { return round_.teams[static_cast<size_t>(team)]; }

  Action& push(Kind kind, int team) {
    Action& action = round_.actions.emplace_back();
    action.kind = kind;
    action.id = random_.next();
    action.team = team;
    return action;
  }

  void add() {
    const int team = random_.pick(alive_);
    const bool hasRoom = round_.teams.size() < kMaxTeams;
    const size_t draw = random_.below(20);
    if (draw == 0 && hasRoom) return addSplit(team);
    if (draw == 1 && hasRoom && teamAt(team).size() > 1) return addShrink(team);
    if (draw == 2 && team != alive_.front()) {
      push(Kind::kDestroy, team).finalizes = random_.oneIn(2);
      return endTeam(team);
    }
    if (draw == 3) {
      Action& action = push(Kind::kFreeze, team);
      action.victim = random_.intBelow(static_cast<size_t>(plan_.processCount));
      action.delayUs = static_cast<int64_t>(1000 + random_.below(200'000));
      return;
    }
    if (draw == 4 && hasRoom) return addBusyEnd(Kind::kAbort);
    if (draw == 5 && hasRoom) return addBusyEnd(Kind::kRevoke);
    addCalls();
  }

  void addSplit(int parent) {
    const size_t colors = 1 + random_.below(3);
    std::vector<Team> children(colors);
    // Equal keys keep the parent's order, keys that fall turn it round.
    const bool reverses = random_.oneIn(2);
    std::vector<int> members = teamAt(parent).members;
    if (reverses) std::ranges::reverse(members);
    for (const int rank : members) place(children, rank);
    Action& action = push(Kind::kSplit, parent);
    action.reversesKeys = reverses;
    for (Team& child : children) {
      if (!child.members.empty()) action.children.push_back(addTeam(std::move(child)));
    }
  }
  // One rank in eight is in no child.
  void place(std::vector<Team>& children, int rank) {
    if (!random_.oneIn(8)) children[random_.below(children.size())].members.push_back(rank);
  }

  void addShrink(int parent) {
    Team child;
    for (const int rank : teamAt(parent).members) {
      if (!random_.oneIn(3)) child.members.push_back(rank);
    }
    if (child.members.empty()) child.members.push_back(teamAt(parent).members.back());
    if (child.size() == teamAt(parent).size()) child.members.pop_back();
    Action& action = push(Kind::kShrink, parent);
    action.children = {addTeam(std::move(child))};
  }

  // A communicator of its own for it, so that the others go on.
  void addBusyEnd(Kind kind) {
    const int parent = alive_.front();
    const int child = addTeam(teamAt(parent));
    push(Kind::kSplit, parent).children = {child};
    Action& action = push(kind, child);
    action.victim = random_.pick(teamAt(child).members);
    action.delayUs = static_cast<int64_t>(random_.below(5000));
    endTeam(child);
    if (kind == Kind::kRevoke) {
      const int next = addTeam(teamAt(parent));
      round_.actions.back().children = {next};
    }
  }

  void addDeath() {
    Action& action = push(Kind::kDeath, 0);
    action.victim = random_.intBelow(static_cast<size_t>(plan_.processCount));
    action.death = random_.oneIn(4) ? Death::kStop : random_.oneIn(3) ? Death::kExit : Death::kKill;
    action.delayUs = static_cast<int64_t>(random_.below(5000));
    Team survivors;
    for (const int rank : teamAt(0).members) {
      if (plan_.processOfRank[static_cast<size_t>(rank)] != action.victim)
        survivors.members.push_back(rank);
    }
    alive_.clear();
    const int child = addTeam(std::move(survivors));
    round_.actions.back().children = {child};
  }

  void addCalls() {
    const size_t count = random_.oneIn(2) ? 1 : 1 + random_.below(6);
    std::vector<Call> calls;
    for (size_t i = 0; i < count; ++i) calls.push_back(drawCall(count));
    Action& action = push(Kind::kCalls, 0);
    action.calls = std::move(calls);
    action.isGroup = random_.oneIn(2);
    action.usesStreams = random_.oneIn(2);
  }

  size_t drawCount(size_t maxBytes) {
    switch (random_.below(8)) {
      case 0: return 0;
      case 1: return 1;
      case 2:
      case 3: return random_.below(70);
      case 4:
      case 5: return random_.below(5000);
      case 6: return random_.below(maxBytes / 8 + 1);
      default: return random_.below(maxBytes + 1);
    }
  }

  Call drawCall(size_t ofHowMany) {
    Call call;
    call.id = random_.next();
    call.team = random_.pick(alive_);
    const Team& team = teamAt(call.team);
    call.verb = static_cast<Verb>(random_.below(static_cast<size_t>(Verb::kExchange) + 1));
    call.type = random_.pick(kTypes);
    call.fold = static_cast<Fold>(random_.below(static_cast<size_t>(Fold::kPreMulSum) + 1));
    // All buffers of a rank together stay within a few MiB.
    size_t maxBytes = (random_.oneIn(6) ? size_t{4} << 20 : size_t{1} << 18) / ofHowMany;
    // Each rank works each element out from all ranks' inputs.
    const size_t times = (team.members.size() + kFewRanks - 1) / kFewRanks;
    maxBytes /= times * times;
    const size_t bytes = drawCount(maxBytes);
    const bool hasBlocks = call.verb != Verb::kAllReduce && call.verb != Verb::kReduce &&
                           call.verb != Verb::kBroadcast && call.verb != Verb::kBcast;
    const size_t share = hasBlocks ? static_cast<size_t>(team.size()) : 1;
    call.count = bytes < 5000 ? bytes : bytes / sizeOf(call.type) / share;
    call.root = random_.intBelow(team.members.size());
    call.inPlace = random_.oneIn(2) && call.verb != Verb::kAlltoAll && call.verb != Verb::kExchange;
    call.shift = random_.below(3);
    return call;
  }

  Random& random_;
  const Plan& plan_;
  bool mayEndInDeath_;
  Round round_;
  std::vector<int> alive_;  // the first is everyone who lives
};

void drawEnvironment(Random& random, Plan& plan) {
  const auto set = [&plan](const char* name, std::string value) {
    plan.environment.emplace_back(name, std::move(value));
  };
  set("TUTTI_DEVICE", "host");
  // Long against what an overloaded machine does to a process, short against the runner's patience.
  set("TUTTI_TIMEOUT_MS", "5000");
  const std::vector<std::string> algorithms = {"allreduce:ring",
                                               "allreduce:tree",
                                               "allreduce:oneshot",
                                               "allreduce:twoshot",
                                               "allreduce:doubling",
                                               "allreduce:pat",
                                               "allgather:ring",
                                               "allgather:pat",
                                               "reducescatter:ring",
                                               "broadcast:tree",
                                               "broadcast:twoshot",
                                               "reduce:tree",
                                               "^pat",
                                               "^oneshot",
                                               "^direct",
                                               "^tree"};
  if (random.oneIn(2)) {
    std::string value = random.pick(algorithms);
    if (value[0] != '^' && random.oneIn(2)) value += ";" + algorithms[random.below(6)];
    set("NCCL_ALGO", value);
  }
  const std::vector<std::string> sizes = {"4096", "16384", "65536", "1048576"};
  if (random.oneIn(3)) set("NCCL_BUFFSIZE", random.pick(sizes));
  if (random.oneIn(4)) set("NCCL_P2P_DISABLE", "1");
  if (random.oneIn(3)) set("TUTTI_PROCESS_READ", "1");
}

template <typename Enum, size_t kCount>
std::string nameOf(Enum value, const char* const (&names)[kCount]) {
  return names[static_cast<size_t>(value)];
}

}  // namespace

int Team::placeOf(int rank) const {
  const auto found = std::ranges::find(members, rank);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

Plan makePlan(uint64_t seed) {
  Random random(seed);
  Plan plan;
  plan.seed = seed;
  const size_t ranks = random.oneIn(4) ? kFewRanks + 1 + random.below(kMaxRanks - kFewRanks)
                                       : 1 + random.below(kFewRanks);
  const size_t processes = random.oneIn(4) ? 1 : 1 + random.below(ranks);
  plan.processCount = static_cast<int>(processes);
  for (size_t rank = 0; rank < ranks; ++rank) {
    // Every process has one; the others go anywhere.
    plan.processOfRank.push_back(
        static_cast<int>(rank < processes ? rank : random.below(processes)));
  }
  drawEnvironment(random, plan);
  plan.repeats = random.oneIn(8);
  const size_t rounds = plan.repeats ? 8 : 1 + random.below(3);
  for (size_t round = 0; round < rounds; ++round) {
    const bool isLast = round + 1 == rounds;
    if (plan.repeats && round > 0) {
      plan.rounds.push_back(plan.rounds.front());
    } else {
      plan.rounds.push_back(Drawer(random, plan, isLast && !plan.repeats).draw());
    }
  }
  return plan;
}

std::string describe(const Call& call) {
  constexpr const char* kVerbs[] = {"AllReduce", "Reduce",        "Broadcast", "Bcast",
                                    "AllGather", "ReduceScatter", "AlltoAll",  "Gather",
                                    "Scatter",   "Exchange"};
  constexpr const char* kFolds[] = {"sum", "prod", "max", "min", "avg", "premul"};
  constexpr const char* kTypeNames[] = {"int8",    "uint8",    "int32",      "uint32",
                                        "int64",   "uint64",   "float16",    "float32",
                                        "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return nameOf(call.verb, kVerbs) + "(" + nameOf(call.type, kTypeNames) + ", " +
         nameOf(call.fold, kFolds) + ", count " + std::to_string(call.count) + ", root " +
         std::to_string(call.root) + (call.inPlace ? ", in place" : "") + ", shift " +
         std::to_string(call.shift) + ") on team " + std::to_string(call.team);
}

std::string describe(const Action& action) {
  constexpr const char* kKinds[] = {"calls",  "split", "shrink", "destroy",
                                    "freeze", "abort", "revoke", "death"};
  std::string text = nameOf(action.kind, kKinds);
  if (action.kind == Kind::kCalls) {
    text += action.isGroup ? " in a group" : "";
    text += action.usesStreams ? " on streams" : "";
    for (const Call& call : action.calls) text += "; " + describe(call);
    return text;
  }
  text += " team " + std::to_string(action.team) + " victim " + std::to_string(action.victim);
  for (const int child : action.children) text += " child " + std::to_string(child);
  return text;
}

// What it takes is then the tool's time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

std::string toJson(const Plan& plan) {
  nlohmann::json json = {{"seed", plan.seed},
                         {"processes", plan.processCount},
                         {"ranks", plan.rankCount()},
                         {"repeats", plan.repeats},
                         {"sanitized", kIsSanitized},
                         {"environment", nlohmann::json::object()},
                         {"rounds", nlohmann::json::array()}};
  for (const auto& [name, value] : plan.environment) json["environment"][name] = value;
  for (const Round& round : plan.rounds) {
    nlohmann::json actions = nlohmann::json::array();
    nlohmann::json entry = {{"ids", round.idCount}, {"calls", 0}};
    size_t calls = 0;
    for (const Action& action : round.actions) {
      actions.push_back(describe(action));
      calls += action.calls.size();
      if (action.kind == Kind::kDeath) {
        entry["victim"] = action.victim;
        entry["stops"] = action.death == Death::kStop;
      }
    }
    entry["calls"] = calls;
    entry["actions"] = std::move(actions);
    json["rounds"].push_back(std::move(entry));
  }
  return json.dump();
}

}  // namespace tutti::soak
