#include "tools/trace_picture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/markup.h"

namespace tutti::tools {
namespace {

using Json = nlohmann::json;

constexpr double kWidth = 1180, kLeft = 190, kRight = 20, kTop = 56;
constexpr double kRow = 20, kBar = 14, kRankGap = 14, kFoot = 34;
constexpr int kTicks = 8;

constexpr std::string_view kStyle =
    "text{font:12px sans-serif;fill:#222}.rank{font-weight:bold}.small{font-size:11px;fill:#555}"
    ".call{fill:#4c6fb1}.run{fill:#2f4f8f}.send{fill:#e08e3c}.receive{fill:#4f9d69}"
    ".wait{fill:#f3d9bd}.used{fill:#cfe6d6}.arrow{stroke:#999;stroke-width:.6;fill:none}"
    ".grid{stroke:#e4e4e4}.row{stroke:#f0f0f0}";

struct Span {
  double begin = 0, end = 0;  // us
  bool overlaps(const Span& other) const { return begin <= other.end && end >= other.begin; }
};

Span spanOf(const Json& event) {
  const double begin = event.at("ts");
  return {.begin = begin, .end = begin + event.value("dur", 0.0)};
}

// The time from the first of these calls' beginnings to the last one's end.
std::optional<Span> timeOf(const Json& events, const std::string& call) {
  std::optional<Span> time;
  for (const Json& event : events) {
    if (event.value("cat", "") != "call" || !event.at("name").get<std::string>().starts_with(call))
      continue;
    const Span span = spanOf(event);
    if (!time) time = span;
    time = Span{.begin = std::min(time->begin, span.begin), .end = std::max(time->end, span.end)};
  }
  return time;
}

// "to rank 3, messages" is part of the row "to rank 3".
std::string rowOf(const std::string& thread) { return thread.substr(0, thread.find(", messages")); }

// A message's bar is drawn by its phases: first it waits to be sent, or comes in.
std::string_view classOf(const Json& event) {
  const std::string name = event.at("name"), category = event.value("cat", "");
  if (category == "call" || category == "run") return category == "call" ? "call" : "run";
  if (name == "waits for the network") return "wait";
  if (name == "goes out") return "send";
  if (name == "comes in") return "receive";
  return name == "is used" ? "used" : "";
}

class Picture {
 public:
  Picture(const Json& events, const Span& time) : events_(events), time_(time) { nameRows(); }

  std::string draw(const std::string& title) {
    const double height = placeRows() + kFoot;
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\">\n<style>{2}</style>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
        kWidth, height, kStyle);
    addText(kLeft, 20, "rank", title);
    addLegend();
    addScale(height - kFoot);
    addRows();
    for (const Json& event : events_) addBar(event);
    addArrows();
    return text_ + "</svg>\n";
  }

 private:
  using Thread = std::pair<int, int>;       // process, thread
  using Row = std::pair<int, std::string>;  // process, name

  void nameRows() {
    for (const Json& event : events_) {
      if (event.at("ph") != "M") continue;
      const std::string what = event.at("name");
      const std::string name = event.at("args").value("name", "");
      if (what == "process_name") processes_[event.at("pid")] = name;
      if (what == "thread_name") threads_[{event.at("pid"), event.at("tid")}] = rowOf(name);
    }
  }

  // Only those that have something to show. Returns where the last one ends.
  double placeRows() {
    for (const Json& event : events_) {
      if (!classOf(event).empty() && spanOf(event).overlaps(time_)) {
        const Thread thread{event.at("pid"), event.at("tid")};
        rows_[{thread.first, order(threads_[thread]) + threads_[thread]}] = 0;
      }
    }
    double y = kTop;
    int process = -1;
    for (auto& [row, at] : rows_) {
      if (row.first != process) y += kRankGap + kRow;
      process = row.first;
      at = y;
      y += kRow;
    }
    return y;
  }

  // Rows of a rank are sorted by name: calls first.
  static std::string order(const std::string& name) { return name == "calls" ? "0" : "1"; }

  double xOf(double us) const {
    const double part = (us - time_.begin) / std::max(time_.end - time_.begin, 1e-3);
    return kLeft + std::clamp(part, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }
  std::optional<double> yOf(const Json& event) const {
    const auto thread = threads_.find({event.at("pid"), event.at("tid")});
    if (thread == threads_.end()) return std::nullopt;
    const auto row = rows_.find({thread->first.first, order(thread->second) + thread->second});
    if (row == rows_.end()) return std::nullopt;
    return row->second;
  }

  void addText(double x, double y, std::string_view style, const std::string& text) {
    text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, style,
                         escapeMarkup(text));
  }

  void addLegend() {
    double x = kLeft;
    for (const auto& [style, meaning] : {std::pair{"call", "call waits"},
                                         {"run", "call runs"},
                                         {"wait", "message waits to go"},
                                         {"send", "goes out"},
                                         {"receive", "comes in"},
                                         {"used", "is used"}}) {
      text_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"32\" width=\"14\" height=\"12\" class=\"{}\"/>\n", x, style);
      addText(x + 19, 42, "small", meaning);
      x += 150;
    }
  }

  void addScale(double bottom) {
    const double raw = (time_.end - time_.begin) / kTicks;
    const double power = std::pow(10, std::floor(std::log10(std::max(raw, 1e-3))));
    double step = power;
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
      step = factor * power;
      if (step >= raw) break;
    }
    for (double us = 0; us <= time_.end - time_.begin; us += step) {
      const double x = xOf(time_.begin + us);
      text_ += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.1f}\" class=\"grid\"/>\n", x,
          kTop, bottom);
      addText(x + 2, bottom + 16, "small", fmt::format("{:g} us", us));
    }
  }

  void addRows() {
    int process = -1;
    for (const auto& [row, y] : rows_) {
      if (row.first != process) addText(8, y - 6, "rank", processes_[row.first]);
      process = row.first;
      addText(24, y + kBar - 3, "small", row.second.substr(1));
      text_ +=
          fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" class=\"row\"/>\n",
                      kLeft, kWidth - kRight, y + kRow - 2);
    }
  }

  void addBar(const Json& event) {
    const std::string_view style = classOf(event);
    if (style.empty() || event.at("ph") != "X") return;
    const Span span = spanOf(event);
    const std::optional<double> y = yOf(event);
    if (!span.overlaps(time_) || !y) return;
    const double inset = style == "run" ? 3 : 0;
    text_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" class=\"{}\" "
        "fill-opacity=\".8\"><title>{} {:.1f} us</title></rect>\n",
        xOf(span.begin), *y + inset, std::max(xOf(span.end) - xOf(span.begin), 0.6),
        kBar - 2 * inset, style, escapeMarkup(event.at("name").get<std::string>()),
        span.end - span.begin);
  }

  void addArrows() {
    std::map<std::string, const Json*> sent;
    for (const Json& event : events_) {
      if (event.at("ph") == "s") sent[event.at("id")] = &event;
    }
    for (const Json& event : events_) {
      if (event.at("ph") != "f") continue;
      const auto from = sent.find(event.at("id"));
      if (from == sent.end()) continue;
      const Span span{.begin = from->second->at("ts"), .end = event.at("ts")};
      const std::optional<double> y1 = yOf(*from->second), y2 = yOf(event);
      if (!span.overlaps(time_) || !y1 || !y2) continue;
      text_ += fmt::format("<path d=\"M{:.2f} {:.1f}L{:.2f} {:.1f}\" class=\"arrow\"/>\n",
                           xOf(span.begin), *y1 + kBar / 2, xOf(span.end), *y2 + kBar / 2);
    }
  }

  const Json& events_;
  const Span time_;
  std::map<int, std::string> processes_;
  std::map<Thread, std::string> threads_;  // the rows that they belong to
  std::map<Row, double> rows_;             // where they are drawn
  std::string text_;
};

}  // namespace

Result<std::string> drawTrace(const nlohmann::json& joined, const std::string& call) {
  const Json& events = joined.at("traceEvents");
  const std::optional<Span> time = timeOf(events, call);
  if (!time) return invalidArgument("no call \"{}\" in the traces", call);
  return Picture(events, *time).draw(call.empty() ? "all calls" : call);
}

}  // namespace tutti::tools
