// tutti doctor: network, the library that programs would load, settings.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "base/settings.h"
#include "bootstrap/interfaces.h"
#include "net/registry.h"
#include "tools/doctor_report.h"
#include "tools/own_library.h"

namespace tutti::tools {
namespace {

std::optional<std::string> inList(const std::optional<std::string>& list) {
  if (!list) return std::nullopt;
  for (size_t start = 0; start <= list->size();) {
    const size_t end = std::min(list->find_first_of(":;", start), list->size());
    const std::string path = list->substr(start, end - start) + "/" + kLibraryName;
    if (end > start && ::access(path.c_str(), R_OK) == 0) return path;
    start = end + 1;
  }
  return std::nullopt;
}

// The loader's cache, as ldconfig prints it: "\tlibnccl.so.2 (libc6,x86-64) => /usr/lib/...".
std::optional<std::string> inLoaderCache() {
  for (const std::string& line : linesOf("PATH=/sbin:/usr/sbin:$PATH ldconfig -p 2>/dev/null")) {
    std::string_view text = line;
    text.remove_prefix(std::min(text.find_first_not_of("\t "), text.size()));
    const size_t arrow = text.find("=> ");
    if (text.starts_with(kLibraryName) && arrow != std::string_view::npos)
      return std::string(text.substr(arrow + 3));
  }
  return std::nullopt;
}

// Where the loader would find the library for a program that names it only, and why there.
struct Found {
  std::string path;
  std::string reason;
};

std::optional<Found> findByName() {
  const auto preload = environmentVariable("LD_PRELOAD");
  if (preload && preload->find("libnccl") != std::string::npos)
    return Found{*preload, "LD_PRELOAD"};
  if (const auto path = inList(environmentVariable("LD_LIBRARY_PATH"))) {
    return Found{*path, "LD_LIBRARY_PATH"};
  }
  if (const auto path = inLoaderCache()) return Found{*path, "the loader's cache"};
  return std::nullopt;
}

}  // namespace

void examineNetwork(DoctorReport& report, const Settings& settings) {
  Section& section = report.open("network");
  auto all = bootstrap::listInterfaces();
  if (!all.ok()) {
    report.find(std::string(all.status().message()), "allow this process to list interfaces");
    return;
  }
  for (const bootstrap::Interface& each : all.value()) {
    section.add(each.name, each.address.hostText(),
                !each.isUp        ? "down"
                : each.isLoopback ? "loopback"
                                  : "");
  }
  const net::NetworkOptions options = net::networkOptionsOf(settings);
  auto choice = bootstrap::chooseInterfaces(
      all.value(), {.names = options.interfaces, .family = options.family, .near = {}});
  if (!choice.ok()) {
    report.find(std::string(choice.status().message()),
                "change NCCL_SOCKET_IFNAME or NCCL_SOCKET_FAMILY");
    return;
  }
  section.add("chosen", choice.value().interfaces.front().name, choice.value().reason);
  const auto network = net::chooseNetwork(options);
  if (network.ok()) {
    section.add("between_hosts", network.value().name, network.value().reason);
  } else {
    report.find(std::string(network.status().message()), "change NCCL_NET, or what it needs");
  }
  if (!settings.text("NCCL_COMM_ID").empty() && settings.text("TUTTI_SECRET_FILE").empty()) {
    report.find("NCCL_COMM_ID without TUTTI_SECRET_FILE: whoever reaches the port can join the job",
                "set TUTTI_SECRET_FILE to a file that only the ranks' user can read");
  }
}

void examineLibraries(DoctorReport& report) {
  Section& section = report.open("library");
  const std::optional<std::string> folder = ownLibraryFolder();
  const std::string own = folder ? fmt::format("{}/{}", *folder, kLibraryName) : "";
  if (!own.empty()) section.add("tuttis_own", own);
  const std::optional<Found> found = findByName();
  if (!found) {
    section.add("found_by_name", "none", fmt::format("no {} where the loader looks", kLibraryName));
  } else {
    section.add("found_by_name", found->path,
                fmt::format("by {}; {}", found->reason,
                            isTuttis(found->path) ? "it is tutti's" : "it is not tutti's"));
  }
  if (!own.empty() && (!found || !isTuttis(found->path))) {
    section.add("to_use_tuttis", fmt::format("LD_PRELOAD={}", own),
                "in front of the program's command");
  }
}

void examineSettings(DoctorReport& report, const Settings& settings) {
  Section& section = report.open("settings");
  for (const SettingValue& value : settings.values()) {
    if (!value.isSet()) continue;
    std::string note = "from " + value.source;
    if (!value.info->noEffect.empty()) note += fmt::format("; no effect: {}", value.info->noEffect);
    section.add(std::string(value.info->name), value.text, note);
  }
  if (section.facts.empty()) section.add("set", "none", "all defaults; tutti settings lists them");
  for (const SettingComplaint& complaint : settings.complaints()) {
    report.find(complaint.text, "correct or remove it");
  }
}

}  // namespace tutti::tools
