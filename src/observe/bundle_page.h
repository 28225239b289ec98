// The bundle's page: verdict, ranks and time line in one HTML file that needs nothing else.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "observe/examination.h"

namespace tutti::observe {

// `cause`: one line, why the bundle was made. `files`: the others in the archive, to be linked.
std::string pageOf(std::string_view cause, std::span<const Examination> found,
                   std::span<const std::string> files);

}  // namespace tutti::observe
