#include "observe/process_report.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <sstream>
#include <vector>

#include "base/proc_files.h"
#include "base/read_file.h"
#include "observe/activity.h"

namespace tutti::observe {
namespace {

// As the kernel numbers them, from 1 (include/net/tcp_states.h).
constexpr std::array<std::string_view, 13> kSocketStates = {
    "?",     "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2",   "TIME_WAIT",
    "CLOSE", "CLOSE_WAIT",  "LAST_ACK", "LISTEN",   "CLOSING",   "NEW_SYN_RECV"};

// Where ranks meet is nobody else's business.
constexpr std::array<std::string_view, 1> kNotShown = {"NCCL_COMM_ID"};

std::vector<std::string_view> fieldsOf(std::string_view line) {
  std::vector<std::string_view> fields;
  while (!line.empty()) {
    const size_t begin = line.find_first_not_of(" \n");
    if (begin == std::string_view::npos) break;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find_first_of(" \n"), line.size());
    fields.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return fields;
}

std::string firstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string threadLine(int32_t process, std::string_view thread) {
  const std::string folder = fmt::format("/proc/{}/task/{}/", process, thread);
  const char letter = stateLetter(readFile(folder + "stat"));
  if (letter == '\0') return "";
  const std::string activity = describeActivity(letter, readFile(folder + "syscall"));
  const std::string where = readFile(folder + "wchan");
  std::string text =
      fmt::format("{:>8}  {:<16}  {}", thread, firstLine(readFile(folder + "comm")), activity);
  if (!where.empty() && where != "0") text += fmt::format("  (kernel: {})", where);
  text += '\n';
  std::istringstream stack(readFile(folder + "stack"));  // for root only
  for (std::string line; std::getline(stack, line);) text += "            " + line + '\n';
  return text;
}

// "0100007F:1F90": each word of the address as the processor holds it, and the port as people do.
std::string addressText(std::string_view field) {
  const size_t colon = field.find(':');
  if (colon == std::string_view::npos || (colon != 8 && colon != 32)) return std::string(field);
  std::array<uint32_t, 4> words{};
  for (size_t i = 0; i < colon / 8; ++i)
    words[i] = numberOf<uint32_t>(field.substr(8 * i, 8), 16).value_or(0);
  const bool isLong = colon == 32;
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(isLong ? AF_INET6 : AF_INET, words.data(), text.data(), text.size());
  const uint32_t port = numberOf<uint32_t>(field.substr(colon + 1), 16).value_or(0);
  return isLong ? fmt::format("[{}]:{}", text.data(), port)
                : fmt::format("{}:{}", text.data(), port);
}

std::set<uint64_t> socketsOf(int32_t process) {
  std::set<uint64_t> inodes;
  const std::string folder = fmt::format("/proc/{}/fd/", process);
  constexpr std::string_view kSocket = "socket:[";
  for (const std::string& descriptor : namesIn(folder)) {
    std::array<char, 64> target{};
    const ssize_t bytes =
        ::readlink((folder + descriptor).c_str(), target.data(), target.size() - 1);
    std::string_view text(target.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
    if (!text.starts_with(kSocket)) continue;
    text.remove_prefix(kSocket.size());
    if (const auto inode = numberOf<uint64_t>(text.substr(0, text.find(']'))))
      inodes.insert(*inode);
  }
  return inodes;
}

}  // namespace

std::string threadReport(int32_t processId) {
  const std::string folder = fmt::format("/proc/{}/", processId);
  const std::vector<std::string> threads = namesIn(folder + "task");
  const std::string command = firstLine(readFile(folder + "comm"));
  if (threads.empty())
    return fmt::format("process {}: it has ended, or is another user's\n", processId);
  std::string text = fmt::format("process {} ({}), {} thread{}\n", processId, command,
                                 threads.size(), threads.size() == 1 ? "" : "s");
  for (const std::string& thread : threads) text += threadLine(processId, thread);
  return text + fmt::format(
                    "Stacks in the program: gdb -p {0} -batch -ex 'thread apply all bt', and of "
                    "Python: py-spy dump --pid {0}\n",
                    processId);
}

std::string describeSockets(std::string_view table, const std::set<uint64_t>& inodes) {
  std::string text;
  std::istringstream lines{std::string(table)};
  std::string line;
  std::getline(lines, line);  // the titles
  while (std::getline(lines, line)) {
    // sl local remote state send:receive timer retransmissions user timeout inode ...
    const std::vector<std::string_view> fields = fieldsOf(line);
    if (fields.size() < 10 || fields[4].size() != 17) continue;
    if (!inodes.contains(numberOf<uint64_t>(fields[9]).value_or(0))) continue;
    const size_t state = numberOf<size_t>(fields[3], 16).value_or(0);
    text += fmt::format("{:<13} {:<28} {:<28} {:>10} {:>10} {:>8}\n",
                        kSocketStates[state < kSocketStates.size() ? state : 0],
                        addressText(fields[1]), addressText(fields[2]),
                        numberOf<uint64_t>(fields[4].substr(0, 8), 16).value_or(0),
                        numberOf<uint64_t>(fields[4].substr(9), 16).value_or(0),
                        numberOf<uint64_t>(fields[6], 16).value_or(0));
  }
  return text;
}

std::string socketReport(int32_t processId) {
  const std::set<uint64_t> inodes = socketsOf(processId);
  std::string text = fmt::format("{:<13} {:<28} {:<28} {:>10} {:>10} {:>8}\n", "state", "local",
                                 "remote", "to send", "to read", "retries");
  for (const std::string_view table : {"tcp", "tcp6"})
    text += describeSockets(readFile(fmt::format("/proc/{}/net/{}", processId, table)), inodes);
  return text;
}

std::string describeSettings(const Settings& settings, Shown shown) {
  std::string text;
  for (const SettingValue& each : settings.values()) {
    if (!each.info->noEffect.empty()) continue;
    if (!each.isSet() && shown == Shown::kChanged) continue;
    const bool isHidden =
        each.isSet() && std::ranges::find(kNotShown, each.info->name) != kNotShown.end();
    text += fmt::format("{}={} ({})\n", each.info->name, isHidden ? "not shown" : each.text,
                        each.source);
  }
  return text;
}

std::string startSettings(int32_t processId) {
  Settings::Input input;
  std::istringstream variables(readFile(fmt::format("/proc/{}/environ", processId)));
  for (std::string variable; std::getline(variables, variable, '\0');)
    input.environment.push_back(std::move(variable));
  return describeSettings(Settings::parse(input), Shown::kChanged);
}

}  // namespace tutti::observe
