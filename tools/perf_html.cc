#include "tools/perf_html.h"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/markup.h"
#include "base/version.h"
#include "tools/median.h"

namespace tutti::tools {
namespace {

constexpr double kMicroseconds = 1e6;

// A plot in its own pixels; the page scales it.
constexpr double kWidth = 360;
constexpr double kHeight = 200;
constexpr double kLeft = 52;
constexpr double kRight = kWidth - 12;
constexpr double kTop = 8;
constexpr double kBottom = kHeight - 24;
constexpr double kLabelWidth = 46;

// Out of place and in place differ in colour, line and marker.
constexpr std::string_view kStyle =
    R"(:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5c6570; --line: #d9dee4; --page: #fff;
  --card: #f7f8fa; --out: #2f7de1; --in: #d9601a; --bad: #c0341d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #9aa4af; --line: #333a43; --page: #14171b;
  --card: #1c2026; --out: #69a7ff; --in: #ff9a5c; --bad: #ff8a70; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1240px; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 4px; } h2 { font-size: 1.05rem; margin: 24px 0 6px; }
p { margin: 4px 0; } .soft { color: var(--soft); } .bad { color: var(--bad); font-weight: 600; }
code { overflow-wrap: anywhere; } figure { margin: 0; } figcaption { font-size: 13px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 14px; }
figure { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px; max-width: 620px; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--line); } .curve { fill: none; stroke-width: 2; }
path.out { stroke: var(--out); } circle.out { fill: var(--out); }
path.in { stroke: var(--in); stroke-dasharray: 5 3; } rect.in { fill: var(--in); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 2px 8px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
.key span { margin-right: 16px; } .key svg { display: inline; width: 34px; height: 12px; vertical-align: middle; }
)";

std::string sizeText(size_t bytes) {
  constexpr std::array kUnits = {std::pair{30, "GB"}, std::pair{20, "MB"}, std::pair{10, "KB"}};
  for (const auto& [shift, unit] : kUnits) {
    const size_t one = size_t{1} << shift;
    if (bytes >= one && bytes % one == 0) return fmt::format("{} {}", bytes >> shift, unit);
  }
  return fmt::format("{} B", bytes);
}

std::string timeText(double us) {
  constexpr double kMilli = 1e3;
  if (us >= kMicroseconds) return fmt::format("{:g} s", us / kMicroseconds);
  if (us >= kMilli) return fmt::format("{:g} ms", us / kMilli);
  return fmt::format("{:g} µs", us);
}

std::string bandwidthText(double gbs) { return fmt::format("{:g}", gbs); }

// ---- plots -------------------------------------------------------------------------------------

struct Point {
  size_t bytes;
  double value;
};

// From values to pixels; logarithmic or linear. REQUIRES: low < high, and 0 < low if logarithmic.
class Axis {
 public:
  struct Range {
    double low;
    double high;
    bool isLog;
  };
  Axis(const Range& range, double start, double end)
      : isLog_(range.isLog), low_(of(range.low)), start_(start) {
    factor_ = (end - start) / (of(range.high) - low_);
  }
  double at(double value) const { return start_ + (of(value) - low_) * factor_; }

 private:
  double of(double value) const { return isLog_ ? std::log10(value) : value; }

  bool isLog_;
  double low_;
  double start_;
  double factor_;
};

// One plot: two sets of points over the size.
struct Plot {
  std::string title;
  bool isLog;
  std::string (*label)(double);
  std::vector<Point> outOfPlace;
  std::vector<Point> inPlace;
};

struct Ticks {
  Axis::Range range;
  std::vector<double> values;
};

// Powers of ten around the values.
Ticks logTicks(double low, double high) {
  const double first = std::floor(std::log10(low));
  const double last = std::max(std::ceil(std::log10(high)), first + 1);
  Ticks ticks{.range = {std::pow(10, first), std::pow(10, last), true}, .values = {}};
  for (double power = first; power <= last; ++power) ticks.values.push_back(std::pow(10, power));
  return ticks;
}

// From zero, in steps of 1, 2 or 5 times a power of ten.
Ticks linearTicks(double high) {
  constexpr double kMost = 6;
  double step = std::pow(10, std::floor(std::log10(high)) - 1);
  for (int i = 0; high / step > kMost; ++i) step *= i % 3 == 1 ? 2.5 : 2;
  Ticks ticks{.range = {0, 0, false}, .values = {0}};
  while (ticks.values.back() < high) {
    ticks.values.push_back(static_cast<double>(ticks.values.size()) * step);
  }
  ticks.range.high = ticks.values.back();
  return ticks;
}

Axis sizeAxis(const std::vector<size_t>& sizes) {
  const double low = static_cast<double>(sizes.front());
  const double high = static_cast<double>(sizes.back());
  constexpr double kInset = 8;
  const Axis::Range range{low, sizes.size() > 1 ? high : low * 2, true};
  return Axis(range, kLeft + kInset, kRight - kInset);
}

std::string sizeGrid(const std::vector<size_t>& sizes, const Axis& x) {
  std::string text;
  double free = 0;  // where the next label fits
  for (const size_t bytes : sizes) {
    const double at = x.at(static_cast<double>(bytes));
    if (at < free) continue;
    text += fmt::format(R"(<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>)"
                        R"(<text x="{0:.1f}" y="{3}" text-anchor="middle">{4}</text>)",
                        at, kTop, kBottom, kHeight - 7, sizeText(bytes));
    free = at + kLabelWidth;
  }
  return text;
}

std::string valueGrid(const Plot& plot, const Ticks& ticks, const Axis& y) {
  std::string text;
  for (const double value : ticks.values) {
    text += fmt::format(R"(<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>)"
                        R"(<text x="{3}" y="{4:.1f}" text-anchor="end">{5}</text>)",
                        kLeft, kRight, y.at(value), kLeft - 5, y.at(value) + 4, plot.label(value));
  }
  return text;
}

// Through the medians of each size.
std::string curve(const std::vector<Point>& points, const Axis& x, const Axis& y,
                  std::string_view kind) {
  std::map<size_t, std::vector<double>> bySize;
  for (const Point& point : points) bySize[point.bytes].push_back(point.value);
  std::string path;
  for (const auto& [bytes, values] : bySize) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L",
                        x.at(static_cast<double>(bytes)), y.at(medianOf(values)));
  }
  return fmt::format(R"(<path class="curve {}" d="{}"/>)", kind, path);
}

std::string markers(const Plot& plot, const Axis& x, const Axis& y) {
  std::string text;
  for (const Point& point : plot.outOfPlace) {
    text += fmt::format(
        R"(<circle class="out" cx="{:.1f}" cy="{:.1f}" r="3"><title>{}, out of place: {}</title></circle>)",
        x.at(static_cast<double>(point.bytes)), y.at(point.value), sizeText(point.bytes),
        plot.label(point.value));
  }
  for (const Point& point : plot.inPlace) {
    text += fmt::format(
        R"(<rect class="in" x="{:.1f}" y="{:.1f}" width="5" height="5"><title>{}, in place: {}</title></rect>)",
        x.at(static_cast<double>(point.bytes)) - 2.5, y.at(point.value) - 2.5,
        sizeText(point.bytes), plot.label(point.value));
  }
  return text;
}

std::string figureOf(const Plot& plot) {
  std::vector<size_t> sizes;
  double low = HUGE_VAL;
  double high = 0;
  for (const auto* points : {&plot.outOfPlace, &plot.inPlace}) {
    for (const Point& point : *points) {
      sizes.push_back(point.bytes);
      low = std::min(low, point.value);
      high = std::max(high, point.value);
    }
  }
  if (sizes.empty()) return {};
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  const Ticks ticks = plot.isLog ? logTicks(low, high) : linearTicks(high);
  const Axis x = sizeAxis(sizes);
  const Axis y(ticks.range, kBottom, kTop);
  return fmt::format(
      "<figure><figcaption>{0}</figcaption>\n"
      R"(<svg viewBox="0 0 {1} {2}" role="img" aria-label="{0}">{3}{4}{5}{6}{7}</svg></figure>)"
      "\n",
      plot.title, kWidth, kHeight, sizeGrid(sizes, x), valueGrid(plot, ticks, y),
      curve(plot.outOfPlace, x, y, "out"), curve(plot.inPlace, x, y, "in"), markers(plot, x, y));
}

// ---- cards -------------------------------------------------------------------------------------

struct Card {
  std::string title;
  std::vector<const Row*> rows;
};

// In the order in which each first came.
std::vector<Card> cardsOf(std::span<const Row> rows) {
  std::vector<Card> cards;
  for (const Row& row : rows) {
    std::string title(columnName(row.type));
    if (row.op) title += fmt::format(", {}", columnName(*row.op));
    if (row.root) title += fmt::format(", root {}", *row.root);
    const auto has = [&title](const Card& card) { return card.title == title; };
    auto card = std::find_if(cards.begin(), cards.end(), has);
    if (card == cards.end()) card = cards.insert(cards.end(), {.title = title, .rows = {}});
    card->rows.push_back(&row);
  }
  return cards;
}

// The points that a logarithmic axis of sizes, and the plot's own, can hold.
std::vector<Point> pointsOf(const Card& card, Measurement Row::*side,
                            double (*value)(const Measurement&)) {
  std::vector<Point> points;
  for (const Row* row : card.rows) {
    const double v = value(row->*side);
    if (row->bytes > 0 && v > 0) points.push_back({row->bytes, v});
  }
  return points;
}

Plot plotOf(const Card& card, Plot plot, double (*value)(const Measurement&)) {
  plot.outOfPlace = pointsOf(card, &Row::outOfPlace, value);
  plot.inPlace = pointsOf(card, &Row::inPlace, value);
  return plot;
}

std::string sideCells(const Measurement& side) {
  const bool isWrong = side.wrong.value_or(0) != 0;
  return fmt::format("<td>{:.3f}</td><td>{:.3f}</td><td>{:.3f}</td><td{}>{}</td>",
                     side.seconds * kMicroseconds, side.algorithmGBs, side.busGBs,
                     isWrong ? " class=\"bad\"" : "",
                     side.wrong ? fmt::format("{}", *side.wrong) : std::string("not checked"));
}

std::string tableOf(const Card& card) {
  std::string text =
      "<details><summary>figures</summary><div class=\"scroll\"><table>"
      "<tr><th></th><th></th><th colspan=\"4\">out of place</th><th colspan=\"4\">in place</th>"
      "</tr><tr><th>size</th><th>count</th>";
  for (int side = 0; side < 2; ++side) {
    text += "<th>time, µs</th><th>algbw, GB/s</th><th>busbw, GB/s</th><th>wrong</th>";
  }
  text += "</tr>\n";
  for (const Row* row : card.rows) {
    text += fmt::format("<tr><td>{}</td><td>{}</td>{}{}</tr>\n", sizeText(row->bytes), row->count,
                        sideCells(row->outOfPlace), sideCells(row->inPlace));
  }
  return text + "</table></div></details>\n";
}

std::string sectionOf(const Card& card) {
  const auto time = [](const Measurement& side) { return side.seconds * kMicroseconds; };
  const auto bandwidth = [](const Measurement& side) { return side.busGBs; };
  Plot times{.title = "time", .isLog = true, .label = timeText, .outOfPlace = {}, .inPlace = {}};
  Plot bandwidths{.title = "bus bandwidth, GB/s",
                  .isLog = false,
                  .label = bandwidthText,
                  .outOfPlace = {},
                  .inPlace = {}};
  return fmt::format("<h2>{}</h2>\n<div class=\"plots\">\n{}{}</div>\n{}", escapeMarkup(card.title),
                     figureOf(plotOf(card, std::move(times), time)),
                     figureOf(plotOf(card, std::move(bandwidths), bandwidth)), tableOf(card));
}

std::string headOf(const PageContent& content) {
  const RunInfo& info = content.info;
  const Summary& summary = content.summary;
  const std::string title =
      fmt::format("{}, {} ranks", name(content.options.operation), info.rankCount);
  std::string text = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{0}</title>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<style>\n{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      title, kStyle);
  text += fmt::format("<p class=\"soft\">{} · {}</p>\n", escapeMarkup(content.facts.date),
                      escapeMarkup(content.facts.machine));
  text += fmt::format("<p><code>{}</code></p>\n", escapeMarkup(content.facts.commandLine));
  text += fmt::format(
      "<p>tutti {}, NCCL interface {} (library says {}). Average bus bandwidth {:g} GB/s{}. "
      "Wrong elements: <span{}>{}</span>.</p>\n",
      kVersion, kInterfaceVersion, info.libraryVersion, summary.averageBusGBs,
      summary.isBelowMinimum ? " <span class=\"bad\">(below the minimum)</span>" : "",
      summary.wrong == 0 ? "" : " class=\"bad\"", summary.wrong);
  text +=
      "<p class=\"key\"><span><svg viewBox=\"0 0 34 12\"><path class=\"curve out\" d=\"M1 6 L33 "
      "6\"/><circle class=\"out\" cx=\"17\" cy=\"6\" r=\"3\"/></svg> out of place</span>"
      "<span><svg viewBox=\"0 0 34 12\"><path class=\"curve in\" d=\"M1 6 L33 6\"/>"
      "<rect class=\"in\" x=\"14.5\" y=\"3.5\" width=\"5\" height=\"5\"/></svg> in place</span>"
      "</p>\n";
  return text;
}

// ---- facts -------------------------------------------------------------------------------------

// A file of the kernel's, whole; empty where it cannot be read.
std::string readAll(const char* path) {
  std::string text;
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return text;
  std::array<char, 4096> part{};
  size_t bytes = 0;
  while ((bytes = std::fread(part.data(), 1, part.size(), file)) > 0) {
    text.append(part.data(), bytes);
  }
  std::fclose(file);
  return text;
}

// The value of the first "key : value" line.
std::string valueOf(const std::string& text, std::string_view key) {
  const size_t line = text.find(key);
  const size_t colon = line == std::string::npos ? line : text.find(": ", line);
  if (colon == std::string::npos) return "unknown";
  return text.substr(colon + 2, text.find('\n', colon) - colon - 2);
}

std::string ownCommandLine() {
  std::string words = readAll("/proc/self/cmdline");
  if (words.empty()) return "unknown";
  if (words.back() == '\0') words.pop_back();
  std::replace(words.begin(), words.end(), '\0', ' ');
  return words;
}

}  // namespace

PageFacts gatherPageFacts() {
  const time_t now = static_cast<time_t>(wallClockSeconds());
  tm utc{};
  ::gmtime_r(&now, &utc);
  utsname system{};
  ::uname(&system);
  return {.date = fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", utc.tm_year + 1900,
                              utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min),
          .machine = fmt::format(
              "{}: {} CPUs, {}, {} {}", system.nodename, ::sysconf(_SC_NPROCESSORS_ONLN),
              valueOf(readAll("/proc/cpuinfo"), "model name"), system.sysname, system.release),
          .commandLine = ownCommandLine()};
}

std::string pageOf(const PageContent& content) {
  std::string page = headOf(content);
  for (const Card& card : cardsOf(content.rows)) page += sectionOf(card);
  page +=
      "<p class=\"soft\">Size: of the whole vector. Time: of one operation. Curves go through the "
      "median of a size.</p>\n</body>\n</html>\n";
  return page;
}

}  // namespace tutti::tools
