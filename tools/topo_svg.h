// A machine as a picture: processors on top, PCI below them, then NICs and GPUs, NVLink at the
// bottom. One file without scripts or fonts of its own, so that it shows wherever SVG does.
#pragma once

#include <string>

#include "topology/topology.h"

namespace tutti::tools {

std::string drawSvg(const topology::Topology& topology, const std::string& title);

// The picture, the tree and the table of paths as one page.
std::string drawHtml(const topology::Topology& topology, const std::string& title,
                     const std::string& tree, const std::string& paths);

}  // namespace tutti::tools
