// A format string that knows where it was written, so that warnings can name file, line and
// function while calls stay `warn("rank {} is missing", rank)`.
#pragma once

#include <fmt/core.h>

#include <source_location>
#include <string_view>
#include <type_traits>

namespace tutti {

template <typename... Args>
struct BasicLocatedFormat {
  // Implicit on purpose: made from the literal at the call, and checked against Args while
  // compiling. (nvcc 13 takes fmt 9 in C++20 only with -DFMT_USE_CONSTEXPR=1.)
  template <typename Text>
  consteval BasicLocatedFormat(const Text& text,
                               std::source_location here = std::source_location::current())
      : format(text), where(here) {}

  fmt::format_string<Args...> format;
  std::source_location where;
};

// Not deduced from the format string, only from the arguments that follow it.
template <typename... Args>
using LocatedFormat = BasicLocatedFormat<std::type_identity_t<Args>...>;

}  // namespace tutti
