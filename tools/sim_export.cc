#include "tools/sim_export.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "sim/export.h"

namespace tutti::tools {
namespace {

constexpr const char* kChrome = "chrome";

// A file a suffix, written one after the other.
class Files {
 public:
  explicit Files(std::string path) : path_(std::move(path)) {}

  Status write(std::string_view suffix, std::string_view text) {
    if (path_ == "-") return put(stdout, text);
    if (file_ == nullptr || suffix != suffix_) {
      // One after the other: ranks may be more than a process may have files.
      TUTTI_TRY(close());
      suffix_ = suffix;
      const std::string name = path_ + suffix_;
      file_.reset(std::fopen(name.c_str(), "wb"));
      if (file_ == nullptr) return systemError("open", name, errno);
    }
    return put(file_.get(), text);
  }

  Status close() {
    if (file_ == nullptr || std::fclose(file_.release()) == 0) return {};
    return systemError("write", path_ + suffix_, errno);
  }

 private:
  Status put(std::FILE* file, std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), file) == text.size()) return {};
    Status failed = systemError("write", path_, errno);
    // No half of a file; what is a device stays.
    std::error_code unknown;
    if (file != stdout && std::filesystem::is_regular_file(path_ + suffix_, unknown))
      std::filesystem::remove(path_ + suffix_, unknown);
    return failed;
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::string suffix_;
  std::unique_ptr<std::FILE, Close> file_;
};

std::optional<sim::Format> formatOf(const std::string& name) {
  for (int i = 0; i < sim::kFormatCount; ++i) {
    if (nameOf(static_cast<sim::Format>(i)) == name) return static_cast<sim::Format>(i);
  }
  return std::nullopt;
}

Status exportFlows(const SimSweep& sweep, const SimRow& row, sim::Format format, Files& files) {
  TUTTI_TRY_ASSIGN(const sim::Cluster cluster, readCluster(sweep, row.nodeCount));
  const auto sink = [&files](std::string_view suffix, std::string_view text) {
    return files.write(suffix, text);
  };
  if (format == sim::Format::kSimaiTopology) return sim::writeTopology(cluster, sink);
  if (format == sim::Format::kHtsimTopology) return sim::writeHtsimTopology(cluster, sink);
  TUTTI_TRY_ASSIGN(const sim::VirtualPlan plan, sim::planVirtual(cluster));
  TUTTI_TRY_ASSIGN(const sim::Traffic traffic,
                   sim::Traffic::make(cluster, plan, callOf(sweep, row.bytes, row.rankCount),
                                      *sim::playedOf(row.choices).method));
  TUTTI_TRY_ASSIGN(const sim::FlowTable table, sim::FlowTable::make(traffic));
  return sim::writeFlows(format, table, sink);
}

}  // namespace

std::string exportNames() {
  std::string names;
  for (int i = 0; i < sim::kFormatCount; ++i)
    names += fmt::format("{}, ", nameOf(static_cast<sim::Format>(i)));
  return names + kChrome;
}

Status exportRow(const SimSweep& sweep, const SimRow& row, const std::string& format,
                 const std::string& path) {
  Files files(path);
  if (format == kChrome) {
    TUTTI_TRY_ASSIGN(const SimDetail detail, detailOf(sweep, row));
    TUTTI_TRY(files.write("", sim::chromeTrace(detail.timeline, detail.rank)));
    return files.close();
  }
  const std::optional<sim::Format> known = formatOf(format);
  if (!known) return invalidArgument("{} is none of {}", format, exportNames());
  TUTTI_TRY(exportFlows(sweep, row, *known, files));
  return files.close();
}

}  // namespace tutti::tools
