// Examination: the boards of some processes of this host, looked at from outside or by one of them,
// and what was found, as text and as JSON. What `tutti why` prints and a bundle holds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "observe/board.h"
#include "observe/finding.h"

namespace tutti::observe {

// One communicator.
struct Examination {
  std::string name;
  Evidence evidence;  // the last look
  Finding finding;
};

// All processes of this host. Of those of other users, boardsOf() finds nothing.
std::vector<int32_t> allProcesses();

// The boards that these processes hold, each once, to be read only.
std::vector<Board> boardsOf(std::span<const int32_t> processes);

// What the ranks say of themselves at this moment; askSystem() adds what the system says of their
// processes, which takes some 20 us a rank. look() is both.
Evidence lookAtBoard(const Board& board);
void askSystem(Evidence& evidence);
Evidence look(const Board& board);

// Goes on from the first looks at these boards for up to 1.3 s altogether: one look shows most, but
// whether a late rank is stuck or slow, only several. REQUIRES: as many looks as boards.
std::vector<Examination> examine(std::span<const Board> boards, std::vector<Evidence> firstLooks);

// An examination that ends with what was seen already.
Examination conclude(std::string name, Evidence evidence);

// The verdict and what belongs to it, at most `room` lines (at least 1): the verdict gives way,
// since a table's first lines say most.
std::vector<std::string> findingLines(const Finding& finding, size_t room);

// {"communicators": [...]} with the ranks, their histories and waits.
std::string toJson(std::span<const Examination> found);

}  // namespace tutti::observe
