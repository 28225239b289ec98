#include "base/settings.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/fd.h"
#include "base/settings_table.h"

namespace tutti {
namespace {

constexpr size_t kMaxValueBytes = 4096;
constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr size_t kMaxNameBytes = 64;  // longer than any name we suggest
constexpr size_t kShownBytes = 64;    // of a wrong value, in a complaint

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool equalsInAnyCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return upper(x) == upper(y); });
}

bool startsInAnyCase(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && equalsInAnyCase(text.substr(0, prefix.size()), prefix);
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool isControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// A value from outside, fit to be shown: short, and without control characters.
std::string shown(std::string_view value) {
  std::string text;
  for (const char c : value.substr(0, kShownBytes)) {
    if (isControl(c)) {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  if (value.size() > kShownBytes) text += fmt::format("... ({} bytes)", value.size());
  return text;
}

// What a value was read as; nothing when it is not allowed.
struct Parsed {
  std::string text;
  int64_t integer = -1;
};

int64_t unitFactor(char suffix) {
  switch (upper(suffix)) {
    case 'K': return int64_t{1} << 10;
    case 'M': return int64_t{1} << 20;
    case 'G': return int64_t{1} << 30;
  }
  return 1;
}

std::optional<int64_t> readInteger(std::string_view value, bool takesUnits) {
  int64_t factor = 1;
  if (takesUnits && !value.empty()) factor = unitFactor(value.back());
  if (factor != 1) value.remove_suffix(1);
  const bool isHex = startsInAnyCase(value, "0x");
  if (isHex) value.remove_prefix(2);
  if (isHex && value.starts_with('-')) return std::nullopt;
  int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [rest, problem] = std::from_chars(value.data(), end, number, isHex ? 16 : 10);
  if (problem != std::errc() || rest != end) return std::nullopt;
  if (number > std::numeric_limits<int64_t>::max() / factor) return std::nullopt;
  if (number < std::numeric_limits<int64_t>::min() / factor) return std::nullopt;
  return number * factor;
}

std::optional<Parsed> parseInteger(const SettingInfo& info, std::string_view value) {
  std::string_view range = info.allowed;
  constexpr std::string_view kAuto = "auto|";
  if (range.starts_with(kAuto)) {
    if (equalsInAnyCase(value, "auto")) return Parsed{"auto", -1};
    range.remove_prefix(kAuto.size());
  }
  const std::optional<int64_t> number = readInteger(value, info.unit == "bytes");
  if (!number) return std::nullopt;
  const size_t dots = range.find("..");
  const std::optional<int64_t> least = readInteger(range.substr(0, dots), false);
  const std::optional<int64_t> most = readInteger(range.substr(dots + 2), false);
  if (*number < *least || *number > *most) return std::nullopt;
  return Parsed{fmt::format("{}", *number), *number};
}

// The word as the table spells it.
std::optional<Parsed> parseChoice(std::string_view allowed, std::string_view value) {
  const std::vector<std::string_view> words = split(allowed, '|');
  for (size_t i = 0; i < words.size(); ++i) {
    if (equalsInAnyCase(words[i], value)) {
      return Parsed{std::string(words[i]), static_cast<int64_t>(i)};
    }
  }
  return std::nullopt;
}

std::optional<Parsed> parseList(std::string_view allowed, std::string_view value) {
  Parsed list;
  if (value.starts_with('^')) {
    list.text += '^';
    value.remove_prefix(1);
  }
  bool isFirst = true;
  for (const std::string_view item : split(value, ',')) {
    if (item.empty() || item.find(' ') != std::string_view::npos) return std::nullopt;
    if (!isFirst) list.text += ',';
    isFirst = false;
    if (allowed.empty()) {
      list.text += item;
      continue;
    }
    const std::optional<Parsed> word = parseChoice(allowed, item);
    if (!word) return std::nullopt;
    list.text += word->text;
  }
  return list;
}

std::optional<Parsed> parseAlgorithms(std::string_view allowed, std::string_view value) {
  Parsed rules;
  for (std::string_view rule : split(value, ';')) {
    if (!rules.text.empty()) rules.text += ';';
    const size_t colon = rule.find(':');
    if (colon == 0) return std::nullopt;
    if (colon != std::string_view::npos) {
      rules.text += rule.substr(0, colon + 1);
      rule.remove_prefix(colon + 1);
    }
    const std::optional<Parsed> list = parseList(allowed, rule);
    if (!list) return std::nullopt;
    rules.text += list->text;
  }
  return rules;
}

std::optional<Parsed> parseValue(const SettingInfo& info, std::string_view value) {
  if (value.empty() || value.size() > kMaxValueBytes) return std::nullopt;
  if (std::any_of(value.begin(), value.end(), isControl)) return std::nullopt;
  switch (info.type) {
    case SettingType::kInteger: return parseInteger(info, value);
    case SettingType::kChoice: return parseChoice(info.allowed, value);
    case SettingType::kList: return parseList(info.allowed, value);
    case SettingType::kAlgorithms: return parseAlgorithms(info.allowed, value);
    case SettingType::kText:
    case SettingType::kPath: return Parsed{std::string(value), -1};
  }
  return std::nullopt;
}

std::string wantedText(const SettingInfo& info) {
  std::string words(info.allowed);
  std::replace(words.begin(), words.end(), '|', ' ');
  switch (info.type) {
    case SettingType::kInteger:
      return fmt::format("a number, {}{}{}", words, info.unit.empty() ? "" : " ", info.unit);
    case SettingType::kChoice: return fmt::format("one of {}", words);
    case SettingType::kList:
      return words.empty()
                 ? "a list with commas and no spaces"
                 : fmt::format("a list with commas, ^ in front for all but these, of {}", words);
    case SettingType::kAlgorithms:
      return fmt::format(
          "collective:list;... or a list with commas, ^ in front for all but these, of {}", words);
    case SettingType::kText:
    case SettingType::kPath: break;
  }
  return fmt::format("1 to {} bytes without control characters", kMaxValueBytes);
}

size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (upper(a[i]) == upper(b[j]) ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

std::string_view withoutPrefix(std::string_view name) { return name.substr(name.find('_') + 1); }

// The known name that is nearest to what was written; "" when none is near. The prefix counts
// little: NCCL_TIMEOUT_MS is meant to be TUTTI_TIMEOUT_MS.
std::string_view nearestName(std::string_view name) {
  if (name.size() > kMaxNameBytes) return "";
  std::string_view nearest;
  size_t least = std::min<size_t>(3, withoutPrefix(name).size() / 3) + 1;
  for (const SettingInfo& info : settingTable()) {
    const bool isSamePrefix = upper(info.name.front()) == upper(name.front());
    const size_t distance =
        editDistance(withoutPrefix(info.name), withoutPrefix(name)) + (isSamePrefix ? 0 : 1);
    if (distance < least) {
      least = distance;
      nearest = info.name;
    }
  }
  return nearest;
}

bool isForeign(std::string_view name) {
  for (const std::string_view foreign : foreignNames()) {
    if (foreign.ends_with('=') ? name == foreign.substr(0, foreign.size() - 1)
                               : name.starts_with(foreign)) {
      return true;
    }
  }
  return false;
}

bool looksLikeSetting(std::string_view name) {
  return startsInAnyCase(name, "NCCL_") || startsInAnyCase(name, "TUTTI_");
}

std::string unknownText(std::string_view name, std::string_view source) {
  const std::string_view nearest = nearestName(name);
  std::string text = fmt::format("{} ({}) is no setting", shown(name), source);
  if (!nearest.empty()) text += fmt::format("; did you mean {}?", nearest);
  return text + " `tutti settings --all` lists all";
}

// Gathers what each source says, weakest first; then judges what is left in force.
class Collector {
 public:
  Collector() : raw_(settingTable().size()) {}

  void addFile(const Settings::Input::File& file) {
    if (!file.problem.empty()) {
      complain("", fmt::format("{}: {}; its settings are not in force", file.path, file.problem));
      return;
    }
    std::string_view content = file.content;
    if (content.starts_with("\xef\xbb\xbf")) content.remove_prefix(3);
    std::vector<bool> isSeen(raw_.size());
    size_t number = 0;
    for (const std::string_view line : split(content, '\n'))
      addLine(file.path, line, ++number, isSeen);
  }

  void addVariable(std::string_view variable) {
    const size_t equals = variable.find('=');
    if (equals == std::string_view::npos) return;
    const std::string_view name = variable.substr(0, equals);
    if (!looksLikeSetting(name)) return;
    const size_t row = find(name);
    if (row != raw_.size()) {
      if (raw_[row].source != "environment") {  // as getenv: the first of two wins
        raw_[row] = {std::string(variable.substr(equals + 1)), "environment", "environment"};
      }
    } else if (!isForeign(name)) {
      unknown_.push_back({shown(name), unknownText(name, "environment")});
    }
  }

  void finish(std::vector<SettingValue>& values, std::vector<SettingComplaint>& complaints) {
    const std::span<const SettingInfo> table = settingTable();
    for (size_t i = 0; i < table.size(); ++i) values.push_back(judge(table[i], raw_[i]));
    complaints = std::move(complaints_);
    complaints.insert(complaints.end(), unknown_.begin(), unknown_.end());
  }

 private:
  struct Raw {
    std::string text;
    std::string source;  // "": not set
    std::string place;   // the source, with the line
  };

  static size_t find(std::string_view name) {
    const std::span<const SettingInfo> table = settingTable();
    size_t row = 0;
    while (row < table.size() && table[row].name != name) ++row;
    return row;
  }

  void complain(std::string_view name, std::string text) {
    complaints_.push_back({std::string(name), std::move(text)});
  }

  // A '#' begins a comment at the start of the line or after a blank.
  static std::string_view withoutComment(std::string_view line) {
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
        return line.substr(0, i);
      }
    }
    return line;
  }

  void addLine(const std::string& path, std::string_view line, size_t number,
               std::vector<bool>& isSeen) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    line = trim(withoutComment(line));
    if (line.empty()) return;
    const std::string place = fmt::format("{}:{}", path, number);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      complain("", fmt::format("{}: wanted NAME=value, not \"{}\"", place, shown(line)));
      return;
    }
    const std::string_view name = trim(line.substr(0, equals));
    const size_t row = find(name);
    if (row == raw_.size()) {
      if (!isForeign(name)) complain(shown(name), unknownText(name, place));
      return;
    }
    if (isSeen[row]) {  // as NCCL: the first of two wins
      complain(name, fmt::format("{}: {} is set again; the first line is in force", place, name));
      return;
    }
    isSeen[row] = true;
    raw_[row] = {std::string(trim(line.substr(equals + 1))), path, place};
  }

  SettingValue judge(const SettingInfo& info, const Raw& raw) {
    SettingValue value{.info = &info, .text = "", .integer = -1, .source = "default"};
    if (const std::optional<Parsed> usual = parseValue(info, info.defaultValue)) {
      value.text = usual->text;
      value.integer = usual->integer;
    }
    if (raw.source.empty()) return value;
    if (!info.noEffect.empty()) {
      value.text = shown(raw.text);
      value.source = raw.source;
      return value;
    }
    if (const std::optional<Parsed> parsed = parseValue(info, raw.text)) {
      value.text = parsed->text;
      value.integer = parsed->integer;
      value.source = raw.source;
      return value;
    }
    const std::string fallback = value.text.empty()
                                     ? "it counts as unset"
                                     : fmt::format("the default {} is in force", value.text);
    complain(info.name, fmt::format("{}={} ({}): wanted {}; {}", info.name, shown(raw.text),
                                    raw.place, wantedText(info), fallback));
    return value;
  }

  std::vector<Raw> raw_;  // in the table's order
  std::vector<SettingComplaint> complaints_;
  std::vector<SettingComplaint> unknown_;
};

std::string errorText(int errnoValue) {
  char text[128] = "";
  return ::strerror_r(errnoValue, text, sizeof text);
}

// Bounded, and never waits: the name may lead to a pipe or to /dev/zero.
Settings::Input::File readFile(const std::string& path) {
  Settings::Input::File file{.path = path, .content = ""};
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    file.problem = errorText(errno);
    return file;
  }
  char buffer[4096];
  while (true) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) file.problem = errorText(errno);
    if (count <= 0) return file;
    file.content.append(buffer, static_cast<size_t>(count));
    if (file.content.size() > kMaxFileBytes) {
      file.problem = fmt::format("longer than {} bytes", kMaxFileBytes);
      return file;
    }
  }
}

bool doesExist(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool isPathSetting(std::string_view variable) {
  for (const SettingInfo& info : settingTable()) {
    if (info.type == SettingType::kPath && variable.starts_with(info.name) &&
        variable.substr(info.name.size()).starts_with('=')) {
      return true;
    }
  }
  return false;
}

}  // namespace

Settings Settings::parse(const Input& input) {
  Collector collector;
  for (const Input::File& file : input.files) collector.addFile(file);
  for (const std::string& variable : input.environment) collector.addVariable(variable);
  Settings settings;
  collector.finish(settings.values_, settings.complaints_);
  return settings;
}

Settings Settings::load() {
  Input input;
  const bool isPrivileged = ::getauxval(AT_SECURE) != 0;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    if (isPrivileged && isPathSetting(*variable)) continue;
    input.environment.emplace_back(*variable);
  }
  // In a library that was opened with RTLD_DEEPBIND `environ` is not the program's, and empty.
  for (const SettingInfo& info : settingTable()) {
    const std::string name(info.name);
    const char* value =
        isPrivileged && isPathSetting(name + '=') ? nullptr : ::getenv(name.c_str());
    if (value != nullptr) input.environment.push_back(name + '=' + value);
  }
  const std::string system = "/etc/nccl.conf";
  if (doesExist(system)) input.files.push_back(readFile(system));
  const char* named = ::secure_getenv("NCCL_CONF_FILE");
  const char* home = ::secure_getenv("HOME");
  if (named != nullptr && *named != '\0') {
    input.files.push_back(readFile(named));
  } else if (home != nullptr && *home != '\0') {
    const std::string own = std::string(home) + "/.nccl.conf";
    if (doesExist(own)) input.files.push_back(readFile(own));
  }
  return parse(input);
}

const SettingValue& Settings::get(std::string_view name) const {
  for (const SettingValue& value : values_) {
    if (value.info->name == name) return value;
  }
  assert(false && "a setting that is not in the table");
  static const SettingValue unset;
  return unset;
}

bool listAllows(std::string_view list, std::string_view item) {
  if (list.empty()) return true;
  const bool isExclusion = list.starts_with('^');
  if (isExclusion) list.remove_prefix(1);
  bool isNamed = false;
  for (const std::string_view word : split(list, ',')) {
    if (equalsInAnyCase(word, item) || equalsInAnyCase(word, "ALL")) isNamed = true;
  }
  return isNamed != isExclusion;
}

std::optional<std::string> environmentVariable(const std::string& name) {
  const char* value = ::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

void presetEnvironmentVariable(const char* name, const char* value) { ::setenv(name, value, 0); }

}  // namespace tutti
