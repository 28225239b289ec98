// Whole lines out of a stream of bytes, each with a prefix: so that the output of many processes
// can be told apart and no two lines mix.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::tools {

class LinePrefixer {
 public:
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // Takes bytes in; returns the lines that they complete. A line that grows beyond kMaxLineBytes is
  // returned in pieces, each ended as a line.
  std::string feed(std::string_view bytes);
  // What is left, ended as a line.
  std::string finish();

  static constexpr size_t kMaxLineBytes = 1 << 20;

 private:
  std::string prefix_;
  std::string partial_;
};

}  // namespace tutti::tools
