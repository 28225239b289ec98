// What `tutti doctor` finds out, apart from how it is shown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tutti {
class Settings;
}

namespace tutti::tools {

// Numbers whose key ends in "_bytes" are shown as KiB, MiB, ...
using FactValue = std::variant<std::string, int64_t, bool>;

struct Fact {
  std::string key;  // "memory_bytes": the name in JSON; shown with blanks for underscores
  FactValue value;
  std::string note;  // what it means, or why; "" when plain
};

struct Section {
  std::string name;
  std::vector<Fact> facts;

  void add(std::string key, FactValue value, std::string note = "") {
    facts.push_back({std::move(key), std::move(value), std::move(note)});
  }
};

// Something is wrong, and this is how to mend it.
struct Finding {
  std::string what;
  std::string mend;
};

struct DoctorReport {
  std::vector<Section> sections;
  std::vector<Finding> findings;

  Section& open(std::string name) { return sections.emplace_back(Section{std::move(name), {}}); }
  void find(std::string what, std::string mend) {
    findings.push_back({std::move(what), std::move(mend)});
  }
};

// Each adds its section. Nothing is left behind: files, processes and sockets they make are gone
// when they return.
void examineMachine(DoctorReport& report);
void examineLimits(DoctorReport& report);
void examineSharing(DoctorReport& report, const Settings& settings);
void examineNetwork(DoctorReport& report, const Settings& settings);
void examineGpus(DoctorReport& report, const Settings& settings);
void examineLibraries(DoctorReport& report);
// The torch of this Python (a path, or a name to be found in PATH), and what it would load.
void examineTorch(DoctorReport& report, const std::string& python);
void examineSettings(DoctorReport& report, const Settings& settings);

// What a running process has loaded. False, told on stderr, when it cannot be looked into.
bool examineProcess(DoctorReport& report, int64_t processId);

// The first line of a file of /proc or /sys, without its end; "" when it cannot be read.
std::string firstLine(const std::string& path);

// What a shell's command prints, without the ends of its lines; none where it cannot be run.
std::vector<std::string> linesOf(const std::string& command);

// "1.5 GiB"
std::string sizeText(int64_t bytes);

}  // namespace tutti::tools
