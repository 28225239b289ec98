// tutti settings: every setting, its value, who set it; and what is wrong with what is set.
#include "base/settings.h"

#include <fmt/core.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/command.h"
#include "tools/terminal.h"

namespace tutti::tools {
namespace {

struct Options {
  bool json = false;
  bool markdown = false;
  bool all = false;
};

std::string_view typeName(SettingType type) {
  switch (type) {
    case SettingType::kInteger: return "integer";
    case SettingType::kChoice: return "choice";
    case SettingType::kList: return "list";
    case SettingType::kAlgorithms: return "lists by collective";
    case SettingType::kText: return "text";
    case SettingType::kPath: return "path";
  }
  return "";
}

// "a|b|c" with its words apart, which also keeps Markdown's tables whole.
std::string allowedText(const SettingInfo& info) {
  std::string text;
  for (const char c : info.allowed) {
    if (c == '|') {
      text += ", ";
    } else {
      text += c;
    }
  }
  if (!text.empty() && !info.unit.empty()) text.append(" ").append(info.unit);
  return text;
}

void printMarkdown() {
  fmt::print(
      "# Settings\n\n"
      "Made by `tutti settings --markdown` from `src/base/settings_table.cc`; a test compares "
      "them.\n\n"
      "Sources, strongest first: the environment; the file that `NCCL_CONF_FILE` names, or else "
      "`~/.nccl.conf`; `/etc/nccl.conf`; the default. Files hold lines `NAME=value`; `#` begins a "
      "comment. A value that is not allowed is told at `NCCL_DEBUG=WARN` and leaves the default in "
      "force; `tutti settings` shows what is in force, where it came from, and names that were "
      "mistyped.\n\n"
      "| Setting | Default | Allowed | What it does |\n| --- | --- | --- | --- |\n");
  for (const SettingInfo& info : settingTable()) {
    if (!info.noEffect.empty()) continue;
    const std::string usual =
        info.defaultValue.empty() ? "" : fmt::format("`{}`", info.defaultValue);
    const std::string allowed =
        info.allowed.empty() ? std::string(typeName(info.type)) : allowedText(info);
    fmt::print("| `{}` | {} | {} | {} |\n", info.name, usual, allowed, info.reason);
  }
  fmt::print(
      "\n## Accepted without effect\n\n"
      "Names that this library knows and does nothing about, most of them so that scripts written "
      "for NCCL run without complaint. Their values are not checked.\n\n"
      "| Setting | What it is about | Why it has no effect |\n| --- | --- | --- |\n");
  for (const SettingInfo& info : settingTable()) {
    if (!info.noEffect.empty())
      fmt::print("| `{}` | {} | {} |\n", info.name, info.reason, info.noEffect);
  }
}

// Without --all: what works here, and what was set in vain.
bool isListed(const SettingValue& value, const Options& options) {
  return options.all || value.info->noEffect.empty() || value.isSet();
}

// Bytes from outside may be no UTF-8: JSON shows what is not as U+FFFD.
std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void printJson(const Settings& settings, const Options& options) {
  nlohmann::ordered_json output;
  output["settings"] = nlohmann::ordered_json::array();
  for (const SettingValue& value : settings.values()) {
    if (!isListed(value, options)) continue;
    output["settings"].push_back({{"name", value.info->name},
                                  {"value", value.text},
                                  {"source", value.source},
                                  {"type", typeName(value.info->type)},
                                  {"unit", value.info->unit},
                                  {"default", value.info->defaultValue},
                                  {"allowed", value.info->allowed},
                                  {"has_effect", value.info->noEffect.empty()},
                                  {"no_effect_because", value.info->noEffect},
                                  {"reason", value.info->reason}});
  }
  output["complaints"] = nlohmann::ordered_json::array();
  for (const SettingComplaint& complaint : settings.complaints()) {
    output["complaints"].push_back({{"name", complaint.name}, {"text", complaint.text}});
  }
  fmt::print("{}\n", dump(output));
}

void printTable(const Settings& settings, const Options& options) {
  const Terminal terminal;
  size_t nameWidth = 0;
  size_t valueWidth = 5;
  for (const SettingValue& value : settings.values()) {
    if (!isListed(value, options)) continue;
    nameWidth = std::max(nameWidth, value.info->name.size());
    valueWidth = std::min<size_t>(32, std::max(valueWidth, value.text.size()));
  }
  fmt::print("{:<{}}  {:<{}}  {}\n", "SETTING", nameWidth, "VALUE", valueWidth, "FROM");
  for (const SettingValue& value : settings.values()) {
    if (!isListed(value, options)) continue;
    std::string line = fmt::format("{:<{}}  {:<{}}  {}", value.info->name, nameWidth, value.text,
                                   valueWidth, value.source);
    if (!value.info->noEffect.empty())
      line += fmt::format("  (no effect: {})", value.info->noEffect);
    const bool isBold = value.isSet() && value.info->noEffect.empty();
    fmt::print("{}\n", isBold ? terminal.paint(Colour::kBold, line)
                              : terminal.paint(value.isSet() ? Colour::kBad : Colour::kDim, line));
  }
  if (!settings.complaints().empty()) fmt::print("\n");
  for (const SettingComplaint& complaint : settings.complaints()) {
    fmt::print("{} {}\n", terminal.paint(Colour::kBad, "wrong:"), complaint.text);
  }
}

int showSettings(const Options& options) {
  if (options.markdown) {
    printMarkdown();
    return kExitOk;
  }
  const Settings settings = Settings::load();
  if (options.json) {
    printJson(settings, options);
  } else {
    printTable(settings, options);
  }
  return settings.complaints().empty() ? kExitOk : kExitFinding;
}

}  // namespace

void addSettings(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<Options>();  // shared by the options and the callback
  CLI::App* command = app.add_subcommand(
      "settings", "Show every setting, its value, who set it, and what is wrong with what is set");
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--markdown", options->markdown, "Print docs/SETTINGS.md");
  command->add_flag("--all", options->all, "Also the settings that have no effect here");
  command->footer(
      "Exit code: 0, or 1 when a name or a value is wrong.\n"
      "Example: NCCL_DEBUGG=INFO tutti settings");
  command->callback([options, &exitCode] {
    if (options->json && options->markdown) {
      throw CLI::ValidationError("--markdown", "not together with --json");
    }
    exitCode = showSettings(*options);
  });
}

}  // namespace tutti::tools
