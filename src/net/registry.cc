#include "net/registry.h"

#include "net/socket/socket_provider.h"

namespace tutti::net {

std::unique_ptr<Provider> openSockets(const NetworkOptions& options) {
  return std::make_unique<socket::SocketProvider>(options);
}

}  // namespace tutti::net
