#include "tools/terminal.h"

#include <unistd.h>

#include "base/settings.h"

namespace tutti::tools {
namespace {

std::string_view escapeCode(Colour colour) {
  switch (colour) {
    case Colour::kGood: return "\x1b[32m";
    case Colour::kBad: return "\x1b[31m";
    case Colour::kDim: return "\x1b[2m";
    case Colour::kBold: return "\x1b[1m";
  }
  return "";
}

}  // namespace

Terminal::Terminal() {
  if (::isatty(STDOUT_FILENO) == 0) return;
  const auto plain = environmentVariable("NO_COLOR");
  const auto kind = environmentVariable("TERM");
  isColoured_ = (!plain || plain->empty()) && kind && *kind != "dumb";
}

std::string Terminal::paint(Colour colour, std::string_view text) const {
  if (!isColoured_) return std::string(text);
  return std::string(escapeCode(colour)).append(text).append("\x1b[0m");
}

}  // namespace tutti::tools
