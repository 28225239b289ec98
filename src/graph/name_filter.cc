#include "graph/name_filter.h"

#include <algorithm>
#include <cctype>

namespace tutti::graph {
namespace {

std::string lower(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (letter != ' ' && letter != '_')
      result.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(letter))));
  }
  return result;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

}  // namespace

NameFilter::NameFilter(std::string_view text) {
  for (const std::string& entry : split(lower(text), ';')) {
    Rule rule;
    std::string_view names = entry;
    if (const size_t colon = names.find(':'); colon != std::string_view::npos) {
      rule.collective = names.substr(0, colon);
      names.remove_prefix(colon + 1);
    }
    if (names.starts_with('^')) {
      rule.isExclusion = true;
      names.remove_prefix(1);
    }
    rule.names = split(names, ',');
    rules_.push_back(std::move(rule));
  }
}

const NameFilter::Rule* NameFilter::ruleFor(Collective collective) const {
  const std::string wanted = lower(name(collective));
  const Rule* general = nullptr;
  for (const Rule& rule : rules_) {
    if (rule.collective == wanted) return &rule;
    if (rule.collective.empty() && collective != Collective::kAllToAll) general = &rule;
  }
  return general;
}

bool NameFilter::allows(Collective collective, std::string_view name) const {
  const Rule* rule = ruleFor(collective);
  if (rule == nullptr || rule->names.empty()) return true;
  const bool isNamed = std::ranges::find(rule->names, lower(name)) != rule->names.end();
  return isNamed != rule->isExclusion;
}

}  // namespace tutti::graph
