// Text for XML, SVG and HTML.
#pragma once

#include <string>
#include <string_view>

namespace tutti {

// The text with &, <, > and " as entities: fit for content and for quoted attributes.
std::string escapeMarkup(std::string_view text);

}  // namespace tutti
