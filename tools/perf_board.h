// Where the ranks of a measurement meet outside the library that is measured: the id, barriers and
// figures travel through shared memory, so timing does not depend on what is timed.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tutti::tools {

inline constexpr size_t kIdBytes = 128;
using IdBytes = std::array<unsigned char, kIdBytes>;

// Ranks that can wait for each other. Every rank calls the same functions in the same order.
class Team {
 public:
  // Returns when all ranks have called. kRemoteError when a rank has failed.
  virtual Status barrier(int rank) = 0;
  // Every rank's value, by rank.
  virtual Result<std::vector<double>> gather(int rank, double value) = 0;
  virtual ~Team() = default;
};

// Shared memory of one host's ranks. Any thread may use it for its own rank.
class Board final : public Team {
 public:
  // Memory that this process and the ones it forks share.
  static Result<std::unique_ptr<Board>> makeAnonymous(int rankCount);

  // Memory for processes that know only a name: the creator makes the file `path` and takes it
  // away once all `processCount` processes have attached; the others wait for it up to
  // timeoutSeconds. A file that another user owns or anyone else may write is refused; one that a
  // dead creator left is replaced.
  struct Rendezvous {
    std::string path = {};
    bool isCreator = false;
    int processCount = 1;
    int timeoutSeconds = 30;
  };
  static Result<std::unique_ptr<Board>> openNamed(const Rendezvous& rendezvous, int rankCount);

  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  ~Board() override;

  Status barrier(int rank) override;
  Result<std::vector<double>> gather(int rank, double value) override;

  void setId(const IdBytes& id);
  IdBytes id() const;

  // Ends every present and later barrier with an error. The first to fail gives the reason, and the
  // code that all processes end with: true.
  bool fail(int rank, std::string_view reason, int exitCode);
  bool hasFailed() const;
  // REQUIRES: hasFailed().
  int exitCode() const;

 private:
  struct Layout;
  static Result<std::unique_ptr<Board>> create(const Rendezvous& rendezvous, int rankCount);
  static Result<std::unique_ptr<Board>> tryAttach(const std::string& path, int rankCount);
  Board(Layout* layout, size_t bytes, int rankCount);
  static size_t bytesFor(int rankCount);

  Layout* layout_;
  size_t bytes_;
  int rankCount_;
  int spins_;  // before a waiting rank lets others run
};

// CPUs that this process may run on.
int usableCpuCount();

}  // namespace tutti::tools
