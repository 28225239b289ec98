#include "tools/launch_lines.h"

namespace tutti::tools {

std::string LinePrefixer::feed(std::string_view bytes) {
  std::string lines;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const bool isWhole = end != std::string_view::npos;
    partial_ += bytes.substr(0, end);
    bytes.remove_prefix(isWhole ? end + 1 : bytes.size());
    if (isWhole || partial_.size() >= kMaxLineBytes) {
      lines += prefix_ + partial_ + '\n';
      partial_.clear();
    }
  }
  return lines;
}

std::string LinePrefixer::finish() {
  if (partial_.empty()) return {};
  std::string line = prefix_ + partial_ + '\n';
  partial_.clear();
  return line;
}

}  // namespace tutti::tools
