// libFuzzer entry: a settings file, and the same lines as environment variables.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  tutti::Settings::Input input{.environment = {},
                               .files = {{.path = "fuzz.conf", .content = text}}};
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    input.environment.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  const tutti::Settings settings = tutti::Settings::parse(input);
  // Whatever was written: a number is within its bounds, for the library divides and allocates by
  // it.
  for (const tutti::SettingValue& value : settings.values()) {
    if (value.info->type != tutti::SettingType::kInteger || !value.info->noEffect.empty()) continue;
    std::string allowed(value.info->allowed);
    if (allowed.starts_with("auto|")) allowed.erase(0, 5);
    long long least = 0, most = 0;
    if (std::sscanf(allowed.c_str(), "%lld..%lld", &least, &most) != 2) continue;
    if (value.integer != -1 && (value.integer < least || value.integer > most)) std::abort();
  }
  return 0;
}
