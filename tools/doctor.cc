// tutti doctor: looks at this machine as a rank would, says what would be used and why, what is
// wrong, and how to mend it.
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/settings.h"
#include "tools/command.h"
#include "tools/doctor_report.h"
#include "tools/terminal.h"

namespace tutti::tools {
namespace {

DoctorReport examine(const std::string& python) {
  const Settings settings = Settings::load();
  DoctorReport report;
  examineMachine(report);
  examineLimits(report);
  examineSharing(report, settings);
  const auto place = static_cast<std::ptrdiff_t>(report.sections.size());
  examineGpus(report, settings);
  examineLibraries(report);
  examineTorch(report, python);
  examineSettings(report, settings);
  // Last, though shown before: while a network's library hangs as it is loaded, nothing else can
  // be.
  examineNetwork(report, settings);
  std::rotate(report.sections.begin() + place, report.sections.end() - 1, report.sections.end());
  return report;
}

struct Options {
  bool isJson = false;
  int64_t processId = 0;  // 0: the machine
  std::string python = "python3";
};

std::string shownValue(const Fact& fact) {
  if (const auto* text = std::get_if<std::string>(&fact.value)) return *text;
  if (const auto* flag = std::get_if<bool>(&fact.value)) return *flag ? "yes" : "no";
  const int64_t number = std::get<int64_t>(fact.value);
  return fact.key.ends_with("_bytes") ? sizeText(number) : fmt::format("{}", number);
}

std::string shownKey(std::string key) {
  if (key.ends_with("_bytes")) key.resize(key.size() - std::string_view("_bytes").size());
  const bool isSetting = key.starts_with("NCCL_") || key.starts_with("TUTTI_");
  if (!isSetting) std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

void printText(const DoctorReport& report) {
  const Terminal terminal;
  size_t width = 0;
  for (const Section& section : report.sections) {
    for (const Fact& fact : section.facts) width = std::max(width, shownKey(fact.key).size());
  }
  for (const Section& section : report.sections) {
    fmt::print("{}\n", terminal.paint(Colour::kBold, section.name));
    for (const Fact& fact : section.facts) {
      const std::string note = fact.note.empty() ? "" : "  (" + fact.note + ")";
      fmt::print("  {:<{}}  {}{}\n", shownKey(fact.key), width, shownValue(fact),
                 terminal.paint(Colour::kDim, note));
    }
  }
  fmt::print("\n");
  for (const Finding& finding : report.findings) {
    fmt::print("{} {}\n  mend: {}\n", terminal.paint(Colour::kBad, "wrong:"), finding.what,
               finding.mend);
  }
  if (report.findings.empty())
    fmt::print("{}\n", terminal.paint(Colour::kGood, "nothing wrong found"));
}

void printJson(const DoctorReport& report) {
  nlohmann::ordered_json output;
  for (const Section& section : report.sections) {
    nlohmann::ordered_json& facts = output[section.name];
    facts = nlohmann::ordered_json::array();
    for (const Fact& fact : section.facts) {
      nlohmann::ordered_json each;
      each["name"] = fact.key;
      std::visit([&](const auto& value) { each["value"] = value; }, fact.value);
      if (!fact.note.empty()) each["note"] = fact.note;
      facts.push_back(std::move(each));
    }
  }
  output["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : report.findings) {
    output["findings"].push_back({{"what", finding.what}, {"mend", finding.mend}});
  }
  fmt::print("{}\n", output.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace

void addDoctor(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<Options>();  // shared by the options and the callback
  CLI::App* command = app.add_subcommand(
      "doctor", "Look at this machine: what would be used and why, what is wrong, how to mend it");
  command
      ->add_option("process", options->processId,
                   "Look at this running process instead: which libnccl.so.2 it has loaded")
      ->check(CLI::PositiveNumber);
  command->add_option("--python", options->python, "The Python whose torch is looked at")
      ->capture_default_str();
  command->add_flag("--json", options->isJson, "Print JSON");
  command->footer(
      "Exit code: 0, 1 when something is wrong, or 3 when the process cannot be looked into.\n"
      "Example: tutti doctor --json | jq .findings");
  command->callback([options, &exitCode] {
    DoctorReport report;
    if (options->processId == 0) {
      report = examine(options->python);
    } else if (!examineProcess(report, options->processId)) {
      exitCode = kExitEnvironment;
      return;
    }
    if (options->isJson) {
      printJson(report);
    } else {
      printText(report);
    }
    exitCode = report.findings.empty() ? kExitOk : kExitFinding;
  });
}

}  // namespace tutti::tools
