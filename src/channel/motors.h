// The motors of a rank's links, and which of them a look is worth: each that receives is a system
// call, and a rank has links for collectives and others for sends from the same peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/transport.h"

namespace tutti::channel {

// The rank's thread only.
class Motors {
 public:
  // It outlives this.
  void add(transport::Motor* motor);
  bool empty() const { return all_.empty(); }

  // Runs those that may have something to move; true when one had. Who has received nothing for
  // long is asked at every eighth call, as long as others receive.
  bool run();
  void runSenders();
  void attend();
  void settle();

 private:
  struct Each {
    transport::Motor* motor = nullptr;
    bool isReceiver = false;
    uint32_t idleRuns = 0;  // in a row
  };
  std::vector<Each> all_;
  std::vector<transport::Motor*> senders_;
  uint32_t looks_ = 0;
  bool isReceiving_ = false;  // one has received lately
};

}  // namespace tutti::channel
