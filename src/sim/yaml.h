// A YAML text as a tree of plain values that remember where they stood, so that every complaint
// names file, line and column. Only what descriptions need: maps, lists and scalars. Aliases, tags
// and several documents are refused, and what a hostile file could cost is bounded. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "topology/description.h"

namespace tutti::sim {

struct YamlLimits {
  size_t bytes = 1_MiB;
  size_t nodes = 65'536;
  int32_t depth = 16;
  int32_t firstLine = 1;  // of the text in its source
};

class YamlNode {
 public:
  enum class Kind : uint8_t { kScalar, kList, kMap };

  Kind kind() const { return kind_; }
  bool isMap() const { return kind_ == Kind::kMap; }
  bool isList() const { return kind_ == Kind::kList; }
  const std::string& text() const { return text_; }                 // of a scalar
  const std::vector<YamlNode>& items() const { return children_; }  // of a list, or a map's values
  const std::vector<std::string>& keys() const { return keys_; }    // of a map, beside items()
  topology::Position position() const { return position_; }

  // nullptr where there is none.
  const YamlNode* find(std::string_view key) const;
  // An error at the first key that is none of these, which it lists.
  Status allowKeys(std::initializer_list<std::string_view> known) const;

  struct Range {
    int64_t low = 0;
    int64_t high = 0;
    std::optional<int64_t> fallback = std::nullopt;  // without one the key must be there
  };
  Result<int64_t> integer(std::string_view key, const Range& range) const;
  struct RealRange {
    double low = 0;
    double high = 0;
    std::optional<double> fallback = std::nullopt;
  };
  Result<double> real(std::string_view key, const RealRange& range) const;
  Result<bool> flag(std::string_view key, bool fallback) const;  // true, false, yes, no
  Result<std::string> string(std::string_view key, std::optional<std::string> fallback) const;

  // "file:line:column: what"
  Status fault(std::string_view what) const;

 private:
  friend class YamlReader;
  Result<const YamlNode*> scalar(std::string_view key, bool isNeeded) const;

  Kind kind_ = Kind::kScalar;
  topology::Position position_{};
  std::string text_;
  std::vector<std::string> keys_;
  std::vector<YamlNode> children_;
  std::shared_ptr<const std::string> source_;  // shared by all nodes of a text
};

// Whatever the text, this returns: the tree, or one error with file:line:column.
Result<YamlNode> parseYaml(std::string_view text, const std::string& source,
                           const YamlLimits& limits = {});

}  // namespace tutti::sim
