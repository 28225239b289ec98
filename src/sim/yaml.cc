#include "sim/yaml.h"

#include <yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tutti::sim {
namespace {

struct Parser {
  Parser() { isReady = yaml_parser_initialize(&raw) == 1; }
  ~Parser() {
    if (isReady) yaml_parser_delete(&raw);
  }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;
  yaml_parser_t raw{};
  bool isReady = false;
};

struct Event {
  ~Event() {
    if (isThere) yaml_event_delete(&raw);
  }
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  yaml_event_t raw{};
  bool isThere = false;
};

topology::Position positionOf(const yaml_mark_t& mark, const YamlLimits& limits) {
  return {.line = static_cast<int32_t>(mark.line) + limits.firstLine,
          .column = static_cast<int32_t>(mark.column + 1)};
}

std::string textOf(const yaml_char_t* value, size_t length) {
  return {reinterpret_cast<const char*>(value), length};
}

}  // namespace

// Builds the tree from the parser's events: bounded while it is read, where a loaded document is
// bounded only afterwards.
class YamlReader {
 public:
  YamlReader(std::string_view text, const std::string& source, const YamlLimits& limits)
      : text_(text), source_(std::make_shared<const std::string>(source)), limits_(limits) {}

  Result<YamlNode> run() {
    if (text_.size() > limits_.bytes)
      return invalidArgument("{}: {} bytes, wanted at most {}", *source_, text_.size(),
                             limits_.bytes);
    if (text_.empty())
      return invalidArgument("{}:{}:1: nothing in it", *source_, limits_.firstLine);
    if (!parser_.isReady) return Status::outOfMemory();
    yaml_parser_set_encoding(&parser_.raw, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_.raw, reinterpret_cast<const unsigned char*>(text_.data()),
                                 text_.size());
    YamlNode root;
    bool isRead = false;
    while (true) {
      Event event;
      TUTTI_TRY(next(event));
      if (event.raw.type == YAML_STREAM_END_EVENT) break;
      if (event.raw.type == YAML_STREAM_START_EVENT || event.raw.type == YAML_DOCUMENT_END_EVENT)
        continue;
      if (event.raw.type == YAML_DOCUMENT_START_EVENT) {
        if (isRead) return faultAt(event, "a second document; wanted one");
        Event first;
        TUTTI_TRY(next(first));
        TUTTI_TRY_ASSIGN(root, read(first, 0));
        isRead = true;
      }
    }
    if (!isRead) return invalidArgument("{}:{}:1: nothing in it", *source_, limits_.firstLine);
    return root;
  }

 private:
  Status next(Event& event) {
    if (yaml_parser_parse(&parser_.raw, &event.raw) == 1) {
      event.isThere = true;
      return {};
    }
    const topology::Position at = problemPosition();
    return invalidArgument("{}:{}:{}: no YAML: {}", *source_, at.line, at.column,
                           parser_.raw.problem != nullptr ? parser_.raw.problem : "unreadable");
  }

  // Where something is missing at the end, the parser names a line that is not there any more.
  topology::Position problemPosition() const {
    const auto lines = static_cast<size_t>(std::ranges::count(text_, '\n'));
    if (parser_.raw.problem_mark.line <= lines)
      return positionOf(parser_.raw.problem_mark, limits_);
    const size_t lastLine = text_.rfind('\n') + 1;  // npos + 1 is 0
    return {.line = static_cast<int32_t>(lines) + limits_.firstLine,
            .column = static_cast<int32_t>(text_.size() - lastLine) + 1};
  }

  Status faultAt(const Event& event, std::string_view what) const {
    const auto at = positionOf(event.raw.start_mark, limits_);
    return invalidArgument("{}:{}:{}: {}", *source_, at.line, at.column, what);
  }

  Result<YamlNode> read(const Event& event, int32_t depth) {
    if (++nodes_ > limits_.nodes)
      return faultAt(event, fmt::format("more than {} values", limits_.nodes));
    if (depth > limits_.depth)
      return faultAt(event, fmt::format("nested deeper than {}", limits_.depth));
    YamlNode node;
    node.source_ = source_;
    node.position_ = positionOf(event.raw.start_mark, limits_);
    switch (event.raw.type) {
      case YAML_SCALAR_EVENT:
        node.text_ = textOf(event.raw.data.scalar.value, event.raw.data.scalar.length);
        return node;
      case YAML_SEQUENCE_START_EVENT: node.kind_ = YamlNode::Kind::kList; break;
      case YAML_MAPPING_START_EVENT: node.kind_ = YamlNode::Kind::kMap; break;
      default: return faultAt(event, "aliases (*name) are not taken: write the value out");
    }
    TUTTI_TRY(readChildren(node, depth));
    return node;
  }

  Status readChildren(YamlNode& node, int32_t depth) {
    while (true) {
      Event event;
      TUTTI_TRY(next(event));
      if (event.raw.type == YAML_SEQUENCE_END_EVENT || event.raw.type == YAML_MAPPING_END_EVENT)
        return {};
      TUTTI_TRY_ASSIGN(YamlNode child, read(event, depth + 1));
      if (!node.isMap()) {
        node.children_.push_back(std::move(child));
        continue;
      }
      if (child.kind_ != YamlNode::Kind::kScalar) return child.fault("a key is a word");
      if (node.find(child.text_) != nullptr)
        return child.fault(fmt::format("{} stands here twice", child.text_));
      Event value;
      TUTTI_TRY(next(value));
      TUTTI_TRY_ASSIGN(YamlNode read, this->read(value, depth + 1));
      node.keys_.push_back(child.text_);
      node.children_.push_back(std::move(read));
    }
  }

  std::string_view text_;
  std::shared_ptr<const std::string> source_;  // shared with the nodes
  YamlLimits limits_;
  Parser parser_;
  size_t nodes_ = 0;
};

Result<YamlNode> parseYaml(std::string_view text, const std::string& source,
                           const YamlLimits& limits) {
  return YamlReader(text, source, limits).run();
}

const YamlNode* YamlNode::find(std::string_view key) const {
  const auto found = std::ranges::find(keys_, key);
  return found == keys_.end() ? nullptr : &children_[static_cast<size_t>(found - keys_.begin())];
}

Status YamlNode::fault(std::string_view what) const {
  return invalidArgument("{}:{}:{}: {}", *source_, position_.line, position_.column, what);
}

Status YamlNode::allowKeys(std::initializer_list<std::string_view> known) const {
  if (!isMap()) return fault("wanted a map of keys and values");
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (std::ranges::find(known, keys_[i]) != known.end()) continue;
    std::string all;
    for (const std::string_view each : known) all += fmt::format(" {}", each);
    return children_[i].fault(fmt::format("{} is not known here; known are{}", keys_[i], all));
  }
  return {};
}

Result<const YamlNode*> YamlNode::scalar(std::string_view key, bool isNeeded) const {
  const YamlNode* node = find(key);
  if (node == nullptr) {
    if (isNeeded) return fault(fmt::format("{} is missing", key));
    return node;
  }
  if (node->kind_ != Kind::kScalar) return node->fault(fmt::format("{} is one value", key));
  return node;
}

Result<int64_t> YamlNode::integer(std::string_view key, const Range& range) const {
  TUTTI_TRY_ASSIGN(const YamlNode* node, scalar(key, !range.fallback));
  if (node == nullptr) return *range.fallback;
  int64_t value = 0;
  const char* end = node->text_.data() + node->text_.size();
  const auto parsed = std::from_chars(node->text_.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < range.low || value > range.high)
    return node->fault(fmt::format("{} is {}, wanted a whole number from {} to {}", key,
                                   node->text_, range.low, range.high));
  return value;
}

Result<double> YamlNode::real(std::string_view key, const RealRange& range) const {
  TUTTI_TRY_ASSIGN(const YamlNode* node, scalar(key, !range.fallback));
  if (node == nullptr) return *range.fallback;
  double value = 0;
  const char* end = node->text_.data() + node->text_.size();
  const auto parsed = std::from_chars(node->text_.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(value) || value < range.low ||
      value > range.high)
    return node->fault(fmt::format("{} is {}, wanted a number from {:g} to {:g}", key, node->text_,
                                   range.low, range.high));
  return value;
}

Result<bool> YamlNode::flag(std::string_view key, bool fallback) const {
  TUTTI_TRY_ASSIGN(const YamlNode* node, scalar(key, false));
  if (node == nullptr) return bool{fallback};
  if (node->text_ == "true" || node->text_ == "yes") return true;
  if (node->text_ == "false" || node->text_ == "no") return false;
  return node->fault(fmt::format("{} is {}, wanted true or false", key, node->text_));
}

Result<std::string> YamlNode::string(std::string_view key,
                                     std::optional<std::string> fallback) const {
  TUTTI_TRY_ASSIGN(const YamlNode* node, scalar(key, !fallback));
  if (node == nullptr) return std::move(*fallback);
  if (node->text_.empty()) return node->fault(fmt::format("{} is empty", key));
  return node->text_;
}

}  // namespace tutti::sim
