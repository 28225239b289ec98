// Text for XML, SVG, HTML and JSON.
#pragma once

#include <string>
#include <string_view>

namespace tutti {

// The text with &, <, > and " as entities: fit for content and for quoted attributes.
std::string escapeMarkup(std::string_view text);

// A JSON string with its quotes, of text that anybody wrote: bytes that are no UTF-8 become '?'.
std::string quoteJson(std::string_view text);

}  // namespace tutti
