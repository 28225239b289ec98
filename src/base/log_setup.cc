#include "base/log_setup.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::log {
namespace {

constexpr std::array<std::pair<std::string_view, Subsystem>, 18> kSubsystems{{
    {"INIT", Subsystem::kInit},
    {"COLL", Subsystem::kColl},
    {"P2P", Subsystem::kP2p},
    {"SHM", Subsystem::kShm},
    {"NET", Subsystem::kNet},
    {"GRAPH", Subsystem::kGraph},
    {"TUNING", Subsystem::kTuning},
    {"ENV", Subsystem::kEnv},
    {"ALLOC", Subsystem::kAlloc},
    {"CALL", Subsystem::kCall},
    {"PROXY", Subsystem::kProxy},
    {"NVLS", Subsystem::kNvls},
    {"BOOTSTRAP", Subsystem::kBootstrap},
    {"REG", Subsystem::kReg},
    {"PROFILE", Subsystem::kProfile},
    {"RAS", Subsystem::kRas},
    {"DESTROY", Subsystem::kDestroy},
    {"ALLOC_HOST", Subsystem::kAllocHost},
}};

constexpr std::array<std::pair<std::string_view, Level>, 6> kLevels{{
    {"NONE", Level::kNone},
    {"VERSION", Level::kVersion},
    {"WARN", Level::kWarn},
    {"INFO", Level::kInfo},
    {"ABORT", Level::kAbort},
    {"TRACE", Level::kTrace},
}};

void sayWhatWasSet(const Settings& settings) {
  for (const SettingValue& value : settings.values()) {
    if (!value.isSet()) continue;
    if (value.info->noEffect.empty()) {
      info(Subsystem::kEnv, "{} set by {} to {}", value.info->name, value.source, value.text);
    } else {
      info(Subsystem::kEnv, "{} set by {} to {} has no effect: {}", value.info->name, value.source,
           value.text, value.info->noEffect);
    }
  }
}

}  // namespace

Config makeConfig(const Settings& settings) {
  Config config;
  for (const auto& [name, level] : kLevels) {
    if (settings.text("NCCL_DEBUG") == name) config.level = level;
  }
  config.subsystems = 0;
  for (const auto& [name, subsystem] : kSubsystems) {
    if (listAllows(settings.text("NCCL_DEBUG_SUBSYS"), name)) {
      config.subsystems |= static_cast<uint32_t>(subsystem);
    }
  }
  config.timestampLevels = 0;
  for (const auto& [name, level] : kLevels) {
    if (listAllows(settings.text("NCCL_DEBUG_TIMESTAMP_LEVELS"), name)) {
      config.timestampLevels |= levelBit(level);
    }
  }
  config.file = settings.text("NCCL_DEBUG_FILE");
  config.timestampFormat = settings.text("NCCL_DEBUG_TIMESTAMP_FORMAT");
  config.infoAfterWarning = settings.integer("NCCL_WARN_ENABLE_DEBUG_INFO") == 1;
  return config;
}

void setUp(const Settings& settings) {
  const Config config = makeConfig(settings);
  const auto& complaints = settings.complaints();
  const bool isLevelWrong =
      std::any_of(complaints.begin(), complaints.end(),
                  [](const SettingComplaint& complaint) { return complaint.name == "NCCL_DEBUG"; });
  if (isLevelWrong) {
    Config loud = config;
    loud.level = std::max(config.level, Level::kWarn);
    configure(loud);
  } else {
    configure(config);
  }
  for (const SettingComplaint& complaint : complaints) warn("{}", complaint.text);
  if (isLevelWrong) configure(config);
  sayWhatWasSet(settings);
}

}  // namespace tutti::log
