// The page of `tutti sim --html`.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/markup.h"
#include "tools/sim_report.h"
#include "tools/sim_trace.h"

namespace tutti::tools {
namespace {

constexpr std::string_view kStyle =
    R"(:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5c6570; --line: #d9dee4; --page: #fff; --card: #f7f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #9aa4af; --line: #333a43; --page: #14171b; --card: #1c2026; } }
body { margin: 0 auto; padding: 16px; max-width: 1100px; background: var(--page); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 4px; } h2 { font-size: 1.05rem; margin: 26px 0 6px; } p { margin: 4px 0; } .soft { color: var(--soft); }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg text.soft { fill: var(--soft); }
.grid { stroke: var(--line); } .curve { fill: none; stroke-width: 2; } code { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 2px 8px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; } td.text, th.text { text-align: left; }
)";

// Told apart by eye, light or dark; repeated when there are more curves.
constexpr std::array<std::string_view, 8> kColours = {"#2f7de1", "#d9601a", "#3f9b4f", "#9a5fc9",
                                                      "#c0392b", "#0f9aa8", "#b58a00", "#d14a94"};

constexpr double kWidth = 900, kHeight = 320, kLeft = 60, kRight = 640, kTop = 14, kBottom = 284;

// 1, 2 or 5 times a power of ten, not below the value.
double roundUpNicely(double value) {
  const double power = std::pow(10, std::floor(std::log10(std::max(value, 1e-9))));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (factor * power >= value) return factor * power;
  }
  return 10 * power;
}

std::string curves(std::span<const SimRow> rows) {
  std::map<std::string, std::vector<const SimRow*>> series;
  double most = 0, low = 1e300, high = 0;
  std::vector<std::string> order;
  std::string previous;
  for (const SimRow& row : rows) {
    const std::string key = fmt::format("{} nodes, {} ranks", row.nodeCount, row.rankCount);
    if (series[key].empty()) order.push_back(key);
    series[key].push_back(&row);
    most = std::max(most, row.busGb);
    low = std::min(low, static_cast<double>(row.bytes));
    high = std::max(high, static_cast<double>(row.bytes));
  }
  const double top = roundUpNicely(most);
  const auto x = [&](double bytes) {
    return high > low ? kLeft + std::log2(bytes / low) / std::log2(high / low) * (kRight - kLeft)
                      : (kLeft + kRight) / 2;
  };
  const auto y = [&](double gb) { return kBottom - gb / top * (kBottom - kTop); };
  std::string svg = fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='bus bandwidth'>",
                                kWidth, kHeight);
  constexpr int kLines = 5;
  for (int i = 0; i <= kLines; ++i) {
    const double gb = top * i / kLines;
    svg += fmt::format(
        "<line class='grid' x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}'/><text class='soft' x='{}' "
        "y='{:.1f}' text-anchor='end'>{:g}</text>",
        kLeft, kRight, y(gb), y(gb), kLeft - 6, y(gb) + 4, gb);
  }
  double lastLabel = -1e9;
  for (const SimRow* row : series[order.front()]) {
    const double at = x(static_cast<double>(row->bytes));
    constexpr double kLabelWidth = 42;
    if (at - lastLabel < kLabelWidth) continue;
    lastLabel = at;
    svg += fmt::format("<text class='soft' x='{:.1f}' y='{}' text-anchor='middle'>{}</text>", at,
                       kBottom + 18, sizeName(row->bytes));
  }
  for (size_t i = 0; i < order.size(); ++i) {
    const auto colour = kColours[i % kColours.size()];
    std::string path;
    for (const SimRow* row : series[order[i]]) {
      const double px = x(static_cast<double>(row->bytes)), py = y(row->busGb);
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", px, py);
      svg += fmt::format(
          "<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'><title>{}, {}: {:.1f} us, {:.1f} GB/s, "
          "{}</title></circle>",
          px, py, colour, order[i], sizeName(row->bytes), row->us, row->busGb,
          escapeMarkup(sim::playedOf(row->choices).name));
    }
    const double legend = kTop + 16 + 18 * static_cast<double>(i);
    svg += fmt::format("<path class='curve' stroke='{}' d='{}'/>", colour, path);
    svg += fmt::format(
        "<rect x='{}' y='{:.1f}' width='14' height='4' fill='{}'/><text x='{}' "
        "y='{:.1f}'>{}</text>",
        kRight + 24, legend - 6, colour, kRight + 44, legend, order[i]);
  }
  return svg + "</svg>";
}

std::string loads(const SimDetail& detail) {
  constexpr double kRow = 20, kBarLeft = 330, kBarRight = 760;
  const double height = kRow * static_cast<double>(detail.loads.size()) + 8;
  std::string svg =
      fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='link loads'>", kWidth, height);
  const double most = detail.loads.empty() ? 1 : detail.loads.front().us;
  for (size_t i = 0; i < detail.loads.size(); ++i) {
    const SimDetail::Load& load = detail.loads[i];
    const double top = kRow * static_cast<double>(i) + 4;
    const double width = (kBarRight - kBarLeft) * load.us / most;
    svg += fmt::format(
        "<text x='{}' y='{:.1f}' text-anchor='end'>{}</text><rect x='{}' y='{:.1f}' width='{:.1f}' "
        "height='13' fill='{}'/><text class='soft' x='{:.1f}' y='{:.1f}'>{:.1f} us, {:.1f} "
        "MB</text>",
        kBarLeft - 8, top + 11, escapeMarkup(load.link), kBarLeft, top, width,
        load.us > .99 * most ? kColours[4] : kColours[0], kBarLeft + width + 6, top + 11, load.us,
        load.bytes / 1e6);
  }
  return svg + "</svg>";
}

std::string timeline(const SimDetail& detail) {
  constexpr size_t kMostChannels = 8;
  constexpr double kRow = 22, kLineLeft = 80, kLineRight = 880;
  int32_t channels = 0;
  double end = 0;
  for (const sim::Span& span : detail.timeline) {
    channels = std::max(channels, span.channel + 1);
    end = std::max(end, span.endUs);
  }
  const int32_t shown = std::min(channels, static_cast<int32_t>(kMostChannels));
  const double height = kRow * shown + 26;
  std::string svg =
      fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='time line'>", kWidth, height);
  for (int32_t channel = 0; channel < shown; ++channel)
    svg += fmt::format("<text class='soft' x='{}' y='{:.1f}' text-anchor='end'>channel {}</text>",
                       kLineLeft - 8, kRow * channel + 16, channel);
  for (const sim::Span& span : detail.timeline) {
    if (span.channel >= shown) continue;
    const double left = kLineLeft + span.startUs / end * (kLineRight - kLineLeft);
    const double width =
        std::max(0.6, (span.endUs - span.startUs) / end * (kLineRight - kLineLeft) - 0.4);
    const bool isSent = index(span.to) >= 0, isRead = index(span.from) >= 0;
    svg += fmt::format(
        "<rect x='{:.1f}' y='{:.1f}' width='{:.2f}' height='16' fill='{}'><title>{:.2f} to {:.2f} "
        "us: "
        "step {}, piece {}, chunk {}, {} bytes{}{}</title></rect>",
        left, kRow * span.channel + 3, width,
        isSent ? (isRead ? kColours[0] : kColours[2]) : kColours[1], span.startUs, span.endUs,
        span.step, span.piece, span.chunk, span.bytes,
        isRead ? fmt::format(", from rank {}", index(span.from)) : "",
        isSent ? fmt::format(", to rank {}", index(span.to)) : "");
  }
  svg += fmt::format(
      "<text class='soft' x='{}' y='{:.1f}'>0</text><text class='soft' x='{}' "
      "y='{:.1f}' text-anchor='end'>{:.1f} us</text>",
      kLineLeft, height - 6, kLineRight, height - 6, end);
  return svg + "</svg>";
}

std::string table(std::span<const SimRow> rows) {
  std::string text =
      "<div class='scroll'><table><tr><th>nodes</th><th>ranks</th><th>bytes</th><th "
      "class='text'>way</th><th>time, us</th><th>bus, GB/s</th><th class='text'>limited "
      "by</th></tr>";
  for (const SimRow& row : rows) {
    text += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td "
        "class='text'>{}</td><td>{:.1f}</td><td>{:.2f}</td>"
        "<td class='text'>{}</td></tr>",
        row.nodeCount, row.rankCount, sizeName(row.bytes),
        escapeMarkup(sim::playedOf(row.choices).name), row.us, row.busGb, escapeMarkup(row.limit));
  }
  return text + "</table></div>";
}

// A row a stream; of waits a thin line before the call.
std::string stepsOf(const TraceReport& report, Rank rank) {
  constexpr double kRow = 30, kLineLeft = 110, kLineRight = 880;
  const size_t rows = std::max<size_t>(report.trace.streams.size(), 1);
  const double height = kRow * static_cast<double>(rows) + 26,
               end = std::max(report.times.us, 1e-9);
  const auto x = [end](double us) { return kLineLeft + us / end * (kLineRight - kLineLeft); };
  std::string svg =
      fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='time line'>", kWidth, height);
  for (size_t row = 0; row < report.trace.streams.size(); ++row)
    svg += fmt::format("<text class='soft' x='{}' y='{:.1f}' text-anchor='end'>{}</text>",
                       kLineLeft - 8, kRow * static_cast<double>(row) + 20,
                       escapeMarkup(report.trace.streams[row]));
  for (size_t i = 0; i < report.trace.steps.size(); ++i) {
    const sim::TraceStep& step = report.trace.steps[i];
    if (step.rank != rank) continue;
    const sim::TraceTimes::Span& span = report.times.spans[i];
    const double top = kRow * std::max(step.stream, 0) + 3;
    const bool isCall = !step.calls.empty();
    if (span.startUs > span.readyUs)
      svg += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.2f}' height='3' fill='{}'/>",
                         x(span.readyUs), top + 10, x(span.startUs) - x(span.readyUs), kColours[4]);
    svg += fmt::format(
        "<rect x='{:.1f}' y='{:.1f}' width='{:.2f}' height='24' fill='{}'><title>{}: {:.1f} to "
        "{:.1f} us{}{}</title></rect>",
        x(span.startUs), top, std::max(0.6, x(span.endUs) - x(span.startUs) - 0.4),
        isCall ? kColours[0] : kColours[2], escapeMarkup(step.name), span.startUs, span.endUs,
        isCall ? fmt::format(", waited {:.1f} us", span.startUs - span.readyUs) : "",
        report.times.ways[i].empty() ? "" : ", " + escapeMarkup(report.times.ways[i]));
  }
  svg += fmt::format(
      "<text class='soft' x='{}' y='{:.1f}'>0</text><text class='soft' x='{}' "
      "y='{:.1f}' text-anchor='end'>{:.1f} us</text>",
      kLineLeft, height - 6, kLineRight, height - 6, report.times.us);
  return svg + "</svg>";
}

std::string callTable(const TraceReport& report) {
  std::string text =
      "<div class='scroll'><table><tr><th class='text'>group</th><th class='text'>call</th>"
      "<th>bytes</th><th>calls</th><th>each, us</th><th>alone, us</th><th>waits, us</th>"
      "<th class='text'>way</th></tr>";
  for (const TraceReport::Calls& each : report.calls) {
    text += fmt::format(
        "<tr><td class='text'>{}</td><td class='text'>{}</td><td>{}</td><td>{}</td>"
        "<td>{:.1f}</td><td>{:.1f}</td><td>{:.1f}</td><td class='text'>{}</td></tr>",
        escapeMarkup(each.group), escapeMarkup(each.call), sizeName(each.bytes), each.count,
        each.us, each.aloneUs, each.waitUs, escapeMarkup(each.way));
  }
  return text + "</table></div>";
}

std::string headOf(const std::string& title, const std::string& commandLine) {
  return fmt::format(
      "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' "
      "content='width=device-width'><title>{0}</title><style>{1}</style><h1>{0}</h1>"
      "<p class='soft'>Simulated, not measured. <code>{2}</code></p>",
      escapeMarkup(title), kStyle, escapeMarkup(commandLine));
}

}  // namespace

std::string simPage(const SimSweep& sweep, std::span<const SimRow> rows, const SimDetail& detail,
                    const std::string& commandLine) {
  const std::string title = fmt::format("{} on {}", name(sweep.collective), detail.clusterName);
  std::string page = headOf(title, commandLine);
  page += fmt::format("<h2>Bus bandwidth, GB/s, by bytes of the vector</h2><figure>{}</figure>",
                      curves(rows));
  page += fmt::format(
      "<h2>What limits: the busiest of {} links</h2><p>{} of {} on {} ranks: time that each link "
      "takes for what crosses it. Limited by: <b>{}</b>.</p><figure>{}</figure>",
      detail.linkCount, escapeMarkup(detail.way), sizeName(detail.bytes), detail.rankCount,
      escapeMarkup(rows.back().limit), loads(detail));
  page += fmt::format("<h2>Time line of rank {}</h2>", index(detail.rank));
  page += detail.timeline.empty()
              ? fmt::format(
                    "<p>Not drawn: {} messages between all ranks, one by one, would take long. A "
                    "smaller <code>--nodes</code> shows the same steps.</p>",
                    detail.drawnMessages)
              : fmt::format(
                    "<p>Each bar is a step: green sends its own data, blue passes on what came, "
                    "orange keeps it; gaps wait. Vectors above 64M are drawn as 64M.</p>"
                    "<figure>{}</figure>",
                    timeline(detail));
  return page + "<h2>Table</h2>" + table(rows) + "</html>\n";
}

std::string tracePage(const TraceReport& report, Rank rank, const std::string& commandLine) {
  std::string page =
      headOf(fmt::format("{} on {}", report.source, report.clusterFile), commandLine);
  const sim::RankTimes& times = report.ranks[static_cast<size_t>(index(rank))];
  page += fmt::format(
      "<p>{} ranks, {:.1f} us. Rank {} computes {:.1f} us and has calls under way for {:.1f} us, "
      "for {:.1f} us of them without computing; for {:.1f} us it has nothing to do.</p>",
      report.rankCount, report.times.us, index(rank), times.computeUs, times.callUs,
      times.exposedUs, times.idleUs);
  if (!report.busiestLink.empty())
    page += fmt::format("<p>The busiest link is <b>{}</b>, {:.0f} % of the time.</p>",
                        escapeMarkup(report.busiestLink), 100 * report.busiestShare);
  page += fmt::format(
      "<h2>Time line of rank {}</h2><p>Green computes, blue communicates; a red line waits for "
      "other ranks.</p><figure>{}</figure>",
      index(rank), stepsOf(report, rank));
  return page + "<h2>Calls of all ranks</h2>" + callTable(report) + "</html>\n";
}

}  // namespace tutti::tools
