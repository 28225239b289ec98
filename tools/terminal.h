// Colours, where a person looks: only on a terminal, and not when NO_COLOR is set (no-color.org).
#pragma once

#include <string>
#include <string_view>

namespace tutti::tools {

enum class Colour { kGood, kBad, kDim, kBold };

class Terminal {
 public:
  Terminal();  // of standard output
  // `text`, painted if this is a terminal.
  std::string paint(Colour colour, std::string_view text) const;

 private:
  bool isColoured_ = false;
};

}  // namespace tutti::tools
