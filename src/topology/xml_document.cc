#include "topology/xml_document.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <pugixml.hpp>
#include <set>

namespace tutti::topology {
namespace {

struct Entity {
  std::string_view text;
  char character;
};
constexpr std::array<Entity, 5> kEntities = {
    {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}}};

pugi::xml_node nodeOf(void* handle) {
  return pugi::xml_node(static_cast<pugi::xml_node_struct*>(handle));
}

// Numbers as people and kernels write them: 12, -1, 0x1f.
std::optional<int64_t> parseInteger(std::string_view text) {
  const bool isNegative = text.substr(0, 1) == "-";
  if (isNegative) text.remove_prefix(1);
  const bool isHex = text.starts_with("0x") || text.starts_with("0X");
  if (isHex) text.remove_prefix(2);
  int64_t value = 0;
  const auto parsed =
      std::from_chars(text.data(), text.data() + text.size(), value, isHex ? 16 : 10);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
      text.substr(0, 1) == "-")
    return std::nullopt;
  return isNegative ? -value : value;
}

// A name from a file, fit for a message: short, and printable.
std::string shown(std::string_view text) {
  constexpr size_t kShownBytes = 64;
  std::string result;
  for (const char c : text.substr(0, kShownBytes)) result += c >= ' ' && c <= '~' ? c : '?';
  if (text.size() > kShownBytes) result += "...";
  return result;
}

}  // namespace

struct XmlDocument::Parsed {
  std::vector<char> buffer;  // what the parser cuts its strings out of
  pugi::xml_document document;
};

XmlDocument::XmlDocument(std::string_view text, std::string source)
    : source_(std::move(source)), parsed_(std::make_unique<Parsed>()) {
  lineStarts_.push_back(0);
  for (size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1))
    lineStarts_.push_back(at + 1);
}

XmlDocument::~XmlDocument() = default;

Result<std::unique_ptr<XmlDocument>> XmlDocument::parse(std::string_view text, std::string source,
                                                        const XmlLimits& limits) {
  const bool isTooLong = text.size() > limits.bytes;
  if (isTooLong) text = text.substr(0, limits.bytes + 1);
  std::unique_ptr<XmlDocument> document(new XmlDocument(text, std::move(source)));
  if (isTooLong)
    return document->fault(limits.bytes, fmt::format("more than {} bytes", limits.bytes));
  TUTTI_TRY(document->checkRaw(text, limits));
  std::vector<char>& buffer = document->parsed_->buffer;
  buffer.assign(text.begin(), text.end());
  // Document types are kept so that they can be seen and refused; entities stay as they are
  // written.
  constexpr unsigned kOptions = (pugi::parse_minimal | pugi::parse_doctype | pugi::parse_eol);
  const pugi::xml_parse_result result = document->parsed_->document.load_buffer_inplace(
      buffer.data(), buffer.size(), kOptions, pugi::encoding_utf8);
  if (!result)
    return document->fault(static_cast<size_t>(std::max<ptrdiff_t>(result.offset, 0)),
                           result.description());
  TUTTI_TRY(document->checkTree(limits));
  return document;
}

// Before anything is allocated for it.
Status XmlDocument::checkRaw(std::string_view text, const XmlLimits& limits) const {
  if (const size_t at = text.find('\0'); at != std::string_view::npos)
    return fault(at, "a zero byte");
  size_t tags = 0;
  for (size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    if (++tags > 2 * limits.elements)
      return fault(at, fmt::format("more than {} elements", limits.elements));
  }
  return {};
}

Status XmlDocument::checkTree(const XmlLimits& limits) const {
  pugi::xml_node node = parsed_->document.first_child();
  if (!node) return fault(0, "no XML element");
  int32_t depth = 1;
  while (node) {
    const auto at = static_cast<size_t>(std::max<ptrdiff_t>(node.offset_debug(), 0));
    // One that only names a file, as hwloc's, is passed over: nothing is ever fetched.
    if (node.type() == pugi::node_doctype &&
        std::string_view(node.value()).find('[') != std::string_view::npos)
      return fault(at, "a document type with declarations (<!DOCTYPE ... [) is not accepted");
    if (depth > limits.depth)
      return fault(at, fmt::format("elements within elements, more than {} deep", limits.depth));
    int32_t attributes = 0;
    for (const pugi::xml_attribute each : node.attributes()) {
      const size_t place = offsetOf(each.name());
      if (++attributes > limits.attributes)
        return fault(place, fmt::format("more than {} attributes", limits.attributes));
      if (std::string_view(each.value()).size() > limits.valueBytes)
        return fault(place, fmt::format("a value longer than {} bytes", limits.valueBytes));
      for (pugi::xml_attribute other = each.next_attribute();
           other && attributes < limits.attributes; other = other.next_attribute()) {
        if (std::string_view(each.name()) == other.name())
          return fault(offsetOf(other.name()),
                       fmt::format("attribute {} is there twice", shown(each.name())));
      }
    }
    if (node.first_child()) {
      node = node.first_child();
      ++depth;
      continue;
    }
    while (node && !node.next_sibling()) {
      node = node.parent();
      --depth;
    }
    node = node.next_sibling();
  }
  const pugi::xml_node first = parsed_->document.document_element();
  if (!first) return fault(0, "no XML element");
  for (pugi::xml_node other = first.next_sibling(); other; other = other.next_sibling()) {
    if (other.type() == pugi::node_element)
      return fault(static_cast<size_t>(std::max<ptrdiff_t>(other.offset_debug(), 0)),
                   fmt::format("a second element after <{}>", shown(first.name())));
  }
  return {};
}

size_t XmlDocument::offsetOf(const char* place) const {
  const std::vector<char>& buffer = parsed_->buffer;
  const bool isInside = place >= buffer.data() && place < buffer.data() + buffer.size();
  return isInside ? static_cast<size_t>(place - buffer.data()) : 0;
}

Position XmlDocument::positionOf(size_t offset) const {
  const auto after = std::ranges::upper_bound(lineStarts_, offset);
  const auto line = after - lineStarts_.begin();
  return {.line = static_cast<int32_t>(line),
          .column = static_cast<int32_t>(offset - *(after - 1)) + 1};
}

Status XmlDocument::fault(size_t offset, std::string_view what) const {
  const Position position = positionOf(offset);
  return invalidArgument("{}:{}:{}: {}", source_, position.line, position.column, what);
}

XmlElement XmlDocument::root() const {
  return XmlElement(*this, parsed_->document.document_element().internal_object(), 1);
}

std::string_view XmlElement::name() const { return nodeOf(node_).name(); }

std::vector<XmlElement> XmlElement::children() const {
  std::vector<XmlElement> found;
  for (const pugi::xml_node child : nodeOf(node_).children()) {
    if (child.type() == pugi::node_element)
      found.push_back(XmlElement(*document_, child.internal_object(), depth_ + 1));
  }
  return found;
}

Position XmlElement::position() const {
  return document_->positionOf(document_->offsetOf(nodeOf(node_).name()));
}

bool XmlElement::has(std::string_view attribute) const {
  return !nodeOf(node_).attribute(std::string(attribute).c_str()).empty();
}

Result<std::string> XmlElement::text(std::string_view attribute) const {
  std::string_view raw = nodeOf(node_).attribute(std::string(attribute).c_str()).value();
  std::string result;
  while (!raw.empty()) {
    const size_t next = std::min(raw.find('&'), raw.size());
    result += raw.substr(0, next);
    raw.remove_prefix(next);
    if (raw.empty()) break;
    const auto entity = std::ranges::find_if(
        kEntities, [&](const Entity& each) { return raw.starts_with(each.text); });
    if (entity == kEntities.end())
      return faultAt(attribute,
                     fmt::format("entity {} is not accepted",
                                 shown(raw.substr(0, std::min(raw.find(';'), raw.size())))));
    result += entity->character;
    raw.remove_prefix(entity->text.size());
  }
  return result;
}

Result<int64_t> XmlElement::integer(std::string_view attribute, const Range& range) const {
  if (!has(attribute)) {
    if (range.fallback) return int64_t{*range.fallback};
    return fault(fmt::format("attribute {} is missing", attribute));
  }
  // Not TUTTI_TRY_ASSIGN: moving the string makes GCC 12 believe that it may be uninitialised.
  Result<std::string> raw = text(attribute);
  if (!raw.ok()) return raw.takeStatus();
  const std::string& value = *raw;
  const std::optional<int64_t> number = parseInteger(value);
  if (!number || *number < range.low || *number > range.high)
    return faultAt(attribute, fmt::format("\"{}\": wanted a number from {} to {}", shown(value),
                                          range.low, range.high));
  return int64_t{*number};
}

Result<uint64_t> XmlElement::hex64(std::string_view attribute) const {
  TUTTI_TRY_ASSIGN(const std::string value, text(attribute));
  std::string_view digits = value;
  if (digits.empty()) return uint64_t{0};
  if (digits.starts_with("0x")) digits.remove_prefix(2);
  uint64_t number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size())
    return faultAt(attribute,
                   fmt::format("\"{}\": wanted a hexadecimal number of 64 bits", shown(value)));
  return uint64_t{number};
}

Result<double> XmlElement::real(std::string_view attribute, double high) const {
  TUTTI_TRY_ASSIGN(const std::string value, text(attribute));
  if (value.empty()) return 0.0;
  double number = 0;
  const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool isNumber = parsed.ec == std::errc() && parsed.ptr == value.data() + value.size() &&
                        std::isfinite(number);
  if (!isNumber || number < 0 || number > high)
    return faultAt(attribute,
                   fmt::format("\"{}\": wanted a number from 0 to {}", shown(value), high));
  return double{number};
}

Result<bool> XmlElement::flag(std::string_view attribute) const {
  TUTTI_TRY_ASSIGN(const int64_t value, integer(attribute, {.low = 0, .high = 1, .fallback = 0}));
  return value == 1;
}

Status XmlElement::fault(std::string_view what) const {
  const size_t offset = document_->offsetOf(nodeOf(node_).name());
  return document_->fault(offset, fmt::format("<{}>: {}", shown(name()), what));
}

Status XmlElement::faultAt(std::string_view attribute, std::string_view what) const {
  const pugi::xml_attribute found = nodeOf(node_).attribute(std::string(attribute).c_str());
  return document_->fault(document_->offsetOf(found.name()),
                          fmt::format("<{}> {}: {}", shown(name()), attribute, what));
}

}  // namespace tutti::topology
