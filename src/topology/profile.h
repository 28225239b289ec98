// A node profile says what a machine's CPU and PCI skeleton leaves open: which GPUs sit at which
// bus ids, their NVLinks, the NICs and their speeds. One XML file a kind of machine:
//
//   <profile version="1" name="eight H100" sm="90" nvswitch="18" gdr="1">
//     <gpu busid="0001:00:00.0"/>
//     <gpu busid="0002:00:00.0" gdr="0"> <nvlink target="0001:00:00.0" count="4"/> </gpu>
//     <nic busid="0101:00:00.0" name="mlx5_0" speed="400000" gdr="1"/>
//   </profile>
//
// dev and rank count up; sm, nvswitch and gdr are <profile>'s unless a GPU has its own.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "topology/description.h"
#include "topology/xml_document.h"

namespace tutti::topology {

struct Profile {
  struct GpuEntry {
    std::string busId = {};
    Gpu gpu = {};
  };
  struct NicEntry {
    std::string busId = {};
    NetPort port = {};
  };
  std::string source = {};
  std::string name = {};
  std::vector<GpuEntry> gpus = {};
  std::vector<NicEntry> nics = {};
};

Result<Profile> parseProfile(const XmlDocument& document);

// The description with the profile's GPUs and NICs in their places. Where the two do not fit (no
// such bus id, a NIC where a GPU should be, a GPU that the profile does not know, another compute
// capability), one error lists every difference.
Result<Description> complete(const Description& description, const Profile& profile);

}  // namespace tutti::topology
