// Chakra execution traces of mlcommons/chakra (schema/protobuf/et_def.proto) as a trace: one file a
// rank, messages with their lengths before them. Nodes are in order by their dependencies alone.
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sim/trace.h"

namespace tutti::sim {

struct ChakraFile {
  Rank rank{0};
  std::string source;  // for messages
  std::string_view text;
};

// `groups` declares what attributes pg_name may name besides all ranks ("world", or none); its
// steps stay in front. One error with file and byte, or with the node at fault. Memory loads and
// stores take their duration; what else has none takes no time.
Result<Trace> parseChakra(const std::vector<ChakraFile>& files, Trace groups);

}  // namespace tutti::sim
