#include "observe/bundle_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/markup.h"
#include "observe/time_line.h"

namespace tutti::observe {
namespace {

constexpr std::string_view kStyle =
    R"(:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5c6570; --line: #d9dee4; --page: #fff;
  --card: #f7f8fa; --good: #2b8a4b; --bad: #c0341d; --done: #6c8fb8; --run: #d9a01a; --wait: #d9601a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #9aa4af; --line: #333a43; --page: #14171b;
  --card: #1c2026; --good: #5cc98a; --bad: #ff8a70; --done: #6f93bf; --run: #e5b53c; --wait: #ff9a5c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1240px; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 4px; } h2 { font-size: 1.05rem; margin: 24px 0 6px; }
p { margin: 4px 0; } .soft { color: var(--soft); } .good { color: var(--good); }
.verdict { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--bad);
  border-radius: 6px; padding: 10px 12px; white-space: pre-wrap; overflow-wrap: anywhere; margin: 6px 0 12px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 10px 3px 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
tr.guilty td { color: var(--bad); font-weight: 600; }
svg { display: block; width: 100%; height: auto; margin-top: 10px; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; } .grid { stroke: var(--line); }
.done { fill: var(--done); } .running { fill: var(--run); } .failed { fill: var(--bad); } .wait { fill: var(--wait); }
.key span { margin-right: 16px; white-space: nowrap; } .key svg { display: inline; width: 12px; height: 12px; margin: 0; }
a { color: inherit; } ul { margin: 4px 0; padding-left: 20px; columns: 4 180px; font-size: 13px; }
)";

// The time line in its own pixels; the page scales it.
constexpr double kWidth = 1200;
constexpr double kLeft = 90;
constexpr double kRight = kWidth - 10;
constexpr double kLaneHeight = 12;
constexpr double kBarHeight = 9;
constexpr double kLeastWidth = 2;  // of a bar that takes no time
constexpr double kAxisHeight = 20;
constexpr int kTicks = 6;

// The kinds as the style, the key and people call them.
struct KindName {
  Bar::Kind kind;
  std::string_view style;
  std::string_view words;
};
constexpr std::array kKinds = {
    KindName{Bar::Kind::kDone, "done", "operation, done"},
    KindName{Bar::Kind::kRunning, "running", "operation that runs"},
    KindName{Bar::Kind::kFailed, "failed", "operation, failed"},
    KindName{Bar::Kind::kWait, "wait", "waits for another rank"},
};

std::string_view styleOf(Bar::Kind kind) {
  return std::ranges::find(kKinds, kind, &KindName::kind)->style;
}

double seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

std::string timeText(int64_t nanoseconds) {
  const double span = seconds(nanoseconds);
  if (span >= 1) return fmt::format("{:.3g} s", span);
  if (span >= 1e-3) return fmt::format("{:.3g} ms", span * 1e3);
  return fmt::format("{:.3g} µs", span * 1e6);
}

std::string verdictBlock(const Examination& found) {
  if (!found.finding.isWrong) return "<p class=\"good\">nothing wrong</p>\n";
  std::string text;
  for (const std::string& line : findingLines(found.finding, SIZE_MAX)) text += line + '\n';
  text.pop_back();
  return fmt::format("<div class=\"verdict\">{}</div>\n", escapeMarkup(text));
}

std::string rankRow(const Evidence& evidence, const RankView& rank, bool isGuilty) {
  std::string doing;
  for (const WaitNote& wait : rank.waits) {
    doing += fmt::format("{}{}, for {:.1f} s", doing.empty() ? "" : "; ", waitText(rank, wait),
                         seconds(evidence.now - wait.since));
  }
  const auto place = static_cast<size_t>(rank.rank);
  if (doing.empty() && place < evidence.activities.size()) doing = evidence.activities[place];
  return fmt::format(
      "<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
      isGuilty ? " class=\"guilty\"" : "", rank.rank, escapeMarkup(rank.hostName),
      rank.process.processId, name(rank.life), escapeMarkup(lastCall(rank)), escapeMarkup(doing));
}

std::string rankTable(const Examination& found) {
  std::string text =
      "<div class=\"scroll\"><table>\n<tr><th>rank</th><th>host</th><th>pid</th><th>state</th>"
      "<th>last call</th><th>now</th></tr>\n";
  for (const RankView& rank : found.evidence.ranks) {
    if (hasPage(rank)) text += rankRow(found.evidence, rank, rank.rank == found.finding.guilty);
  }
  return text + "</table></div>\n";
}

class TimeLine {
 public:
  explicit TimeLine(const Evidence& evidence) : bars_(barsOf(evidence)), last_(evidence.now) {
    first_ = last_;
    for (const Bar& bar : bars_) {
      first_ = std::min(first_, bar.begin);
      lanes_.emplace(std::pair(bar.rank, bar.lane), 0);
    }
    size_t row = 0;
    for (auto& [lane, place] : lanes_) place = row++;
  }

  std::string draw() const {
    if (bars_.empty() || first_ >= last_)
      return "<p class=\"soft\">No times are known: nobody waits, and TUTTI_BUNDLE_DIR was not set "
             "when the ranks began.</p>\n";
    const double height = static_cast<double>(lanes_.size()) * kLaneHeight + kAxisHeight;
    std::string text = fmt::format("<svg viewBox=\"0 0 {} {}\">\n", kWidth, height) + axis(height);
    int32_t named = -1;
    for (const auto& [lane, row] : lanes_) {
      if (std::exchange(named, lane.first) == lane.first) continue;
      text += fmt::format("<text x=\"0\" y=\"{:.1f}\">rank {}</text>\n", topOf(row) + kBarHeight,
                          lane.first);
    }
    for (const Bar& bar : bars_) text += draw(bar);
    return text + "</svg>\n";
  }

 private:
  double placeOf(int64_t time) const {
    return kLeft + (kRight - kLeft) * seconds(time - first_) / seconds(last_ - first_);
  }
  static double topOf(size_t row) { return static_cast<double>(row) * kLaneHeight; }

  std::string draw(const Bar& bar) const {
    const double begin = placeOf(bar.begin);
    return fmt::format(
        "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\"><title>{}\n"
        "{}</title></rect>\n",
        styleOf(bar.kind), begin, topOf(lanes_.at({bar.rank, bar.lane})),
        std::max(kLeastWidth, placeOf(bar.end) - begin), kBarHeight, escapeMarkup(bar.text),
        timeText(bar.end - bar.begin));
  }

  std::string axis(double height) const {
    std::string text;
    for (int i = 0; i <= kTicks; ++i) {
      const int64_t before = (last_ - first_) / kTicks * (kTicks - i);
      const double x = placeOf(last_ - before);
      const std::string label = before == 0 ? "now" : fmt::format("-{}", timeText(before));
      text += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.1f}\"/>"
          "<text x=\"{0:.1f}\" y=\"{2:.1f}\" text-anchor=\"{3}\">{4}</text>\n",
          x, height - kAxisHeight, height - 5, i == kTicks ? "end" : "middle", label);
    }
    return text;
  }

  std::vector<Bar> bars_;
  int64_t first_ = 0;
  int64_t last_ = 0;
  std::map<std::pair<int32_t, int32_t>, size_t> lanes_;  // rank and lane, to the row
};

std::string keyText() {
  std::string text = "<p class=\"key soft\">";
  for (const KindName& each : kKinds) {
    text += fmt::format(
        "<span><svg viewBox=\"0 0 12 12\"><rect class=\"{}\" width=\"12\" height=\"12\"/></svg> "
        "{}</span>",
        each.style, each.words);
  }
  return text + "</p>\n";
}

}  // namespace

std::string pageOf(std::string_view cause, std::span<const Examination> found,
                   std::span<const std::string> files) {
  std::string text = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>tutti: {0}</title>\n<style>{1}</style></head><body>\n"
      "<h1>What the ranks did and waited for</h1>\n<p class=\"soft\">{0}</p>\n",
      escapeMarkup(cause), kStyle);
  for (const Examination& each : found) {
    text += fmt::format("<h2>Communicator {}</h2>\n", escapeMarkup(each.name));
    text += verdictBlock(each) + rankTable(each) + TimeLine(each.evidence).draw();
  }
  if (found.empty())
    text += "<p>No communicator is there (yet, or any more).</p>\n";
  else
    text += keyText();
  text += "<h2>Beside this page</h2>\n<ul>\n";
  for (const std::string& file : files)
    text += fmt::format("<li><a href=\"{0}\">{0}</a></li>\n", escapeMarkup(file));
  return text +
         "</ul>\n<p class=\"soft\">trace.json has the same time line for ui.perfetto.dev.</p>\n"
         "</body></html>\n";
}

}  // namespace tutti::observe
