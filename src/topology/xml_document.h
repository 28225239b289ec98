// A parsed XML text that remembers where everything stood, so that every complaint names file, line
// and column. What a hostile file could do to us is bounded before and while it is read: bytes,
// elements, depth, attributes; no document types, no entities. Used for the topology XML and for
// hwloc's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "topology/description.h"

namespace tutti::topology {

// Within these, a file costs at most about 45 MB while it is read.
struct XmlLimits {
  size_t bytes = 4_MiB;
  size_t elements = 65'536;
  int32_t depth = 64;
  int32_t attributes = 32;    // of one element
  size_t valueBytes = 4_KiB;  // of one attribute
};

class XmlDocument;

// One element; valid as long as its document.
class XmlElement {
 public:
  std::string_view name() const;
  std::vector<XmlElement> children() const;
  Position position() const;
  int32_t depth() const { return depth_; }

  bool has(std::string_view attribute) const;
  // The value with &amp; and its four kin resolved; "" where there is none.
  Result<std::string> text(std::string_view attribute) const;
  // Decimal or 0x; an error when it is no number or not within [low, high]. Without `fallback` it
  // must be there.
  struct Range {
    int64_t low = 0;
    int64_t high = 0;
    std::optional<int64_t> fallback = std::nullopt;
  };
  Result<int64_t> integer(std::string_view attribute, const Range& range) const;
  Result<uint64_t> hex64(std::string_view attribute) const;            // 0 where there is none
  Result<double> real(std::string_view attribute, double high) const;  // 0 to high; 0 where there
                                                                       // is none
  Result<bool> flag(std::string_view attribute) const;  // "0" or "1"; false where there is none

  // "file:line:column: <pci>: what"
  Status fault(std::string_view what) const;
  Status faultAt(std::string_view attribute, std::string_view what) const;

 private:
  friend class XmlDocument;
  XmlElement(const XmlDocument& document, void* node, int32_t depth)
      : document_(&document), node_(node), depth_(depth) {}
  const XmlDocument* document_;
  void* node_;  // pugi's handle: the parser's header stays out of this one
  int32_t depth_;
};

class XmlDocument {
 public:
  static Result<std::unique_ptr<XmlDocument>> parse(std::string_view text, std::string source,
                                                    const XmlLimits& limits = {});
  ~XmlDocument();
  XmlElement root() const;  // the one element that all is in
  const std::string& source() const { return source_; }

 private:
  friend class XmlElement;
  struct Parsed;
  XmlDocument(std::string_view text, std::string source);
  Position positionOf(size_t offset) const;
  size_t offsetOf(const char* place) const;
  Status fault(size_t offset, std::string_view what) const;
  Status checkRaw(std::string_view text, const XmlLimits& limits) const;
  Status checkTree(const XmlLimits& limits) const;

  std::string source_;
  std::vector<size_t> lineStarts_;
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace tutti::topology
