// Settings: one declarative table, from which the parser, `tutti settings` and docs/SETTINGS.md are
// made. Sources, strongest first: environment, NCCL_CONF_FILE (or ~/.nccl.conf), /etc/nccl.conf,
// the default. The only place of the project that reads the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class SettingType : uint8_t {
  kInteger,     // decimal or 0x; where the unit is bytes also with K, M or G
  kChoice,      // one of several words, in any case
  kList,        // words with commas between; a leading ^ means all but these
  kAlgorithms,  // lists as above by collective: "allreduce:ring;oneshot" (the second: all others)
  kText,
  kPath,  // ignored from the environment of a set-user-id program
};

// One row of the table in settings_table.cc.
struct SettingInfo {
  std::string_view name;  // "NCCL_DEBUG"
  SettingType type = SettingType::kText;
  std::string_view unit = "";          // "bytes", "ms", ""
  std::string_view defaultValue = "";  // as text, "" when unset
  // Words separated by '|', or "min..max" for integers (and "auto|min..max"); "" for anything.
  std::string_view allowed = "";
  std::string_view reason = "";  // what it does and why one would change it; one line
  // Why setting it changes nothing in this library; "" for settings that work. Values of settings
  // without effect are not checked: what NCCL takes is taken.
  std::string_view noEffect = "";
};

struct SettingValue {
  const SettingInfo* info = nullptr;
  std::string text;      // the value in force, normalised; "" when unset
  int64_t integer = -1;  // kInteger: the number; kChoice: index of the word; -1: unset or "auto"
  std::string source;    // "default", "environment", or the file's path

  bool isSet() const { return source != "default"; }
};

// What was wrong: a value outside the allowed ones (the default is then in force), an unknown
// NCCL_ or TUTTI_ name, a bad line, a file that cannot be read.
struct SettingComplaint {
  std::string name;  // the setting's, as it was written; "" when a file or line is at fault
  // "NCCL_DEBUG=abc (environment): wanted NONE, VERSION, ...; the default NONE is in force"
  std::string text;
};

// Constant after construction; any thread.
class Settings {
 public:
  // Variables as "NAME=value"; files in ascending strength. Pure: the seam for tests.
  struct Input {
    std::vector<std::string> environment;
    struct File {
      std::string path;
      std::string content;
      std::string problem = "";  // why it could not be read; "" when it could
    };
    std::vector<File> files;
  };
  static Settings parse(const Input& input);

  // Reads the process's environment and files. A program that runs with more rights than its user
  // (set-user-id) takes no path from the environment, and of the files only /etc/nccl.conf.
  static Settings load();

  // `name` must be in the table (asserted; an unset value otherwise). For set-up, not for hot
  // paths.
  const SettingValue& get(std::string_view name) const;
  int64_t integer(std::string_view name) const { return get(name).integer; }
  const std::string& text(std::string_view name) const { return get(name).text; }

  const std::vector<SettingValue>& values() const { return values_; }
  const std::vector<SettingComplaint>& complaints() const { return complaints_; }

 private:
  std::vector<SettingValue> values_;  // in the table's order
  std::vector<SettingComplaint> complaints_;
};

// All rows, in the order of the documentation: first those that work, then those without effect.
std::span<const SettingInfo> settingTable();

// What a kList value says about an item, in any case: "" and "ALL" take everything, "a,b" only
// these, "^a,b" all but these.
bool listAllows(std::string_view list, std::string_view item);

// One variable of this process that is no setting (NO_COLOR, RANK), for the tools.
std::optional<std::string> environmentVariable(const std::string& name);

// One that another library of this process reads, unless it is set. Before that library's first
// call, and not beside a thread that reads the environment.
void presetEnvironmentVariable(const char* name, const char* value);

}  // namespace tutti
