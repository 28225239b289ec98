// A joined trace as a picture: for each rank a row for its calls and one for each of its links;
// bars are messages, lines lead from where they are sent to where they have come.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace tutti::tools {

// SVG. `call`: only the time of the calls whose names begin so ("AllReduce #3"); empty: all.
// kInvalidArgument when there is none.
Result<std::string> drawTrace(const nlohmann::json& joined, const std::string& call);

}  // namespace tutti::tools
