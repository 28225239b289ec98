// Names that look like settings but belong to others. The settings themselves: settingTable().
#pragma once

#include <span>
#include <string_view>

namespace tutti {

// Prefixes of NCCL_ names that other programs read (nccl-tests, plugins, frameworks, builds): no
// complaint about these, they are not for us. A name that ends in '=' is meant whole.
std::span<const std::string_view> foreignNames();

}  // namespace tutti
