// Runs a fuzz target where there is no libFuzzer: every file it is given, and mutations of them
// that are the same each time. driver [-runs=N] [-seed=N] FILE_OR_FOLDER...
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;
using Random = std::mt19937_64;

constexpr size_t kMaxBytes = 1 << 16;

size_t below(Random& random, size_t bound) { return static_cast<size_t>(random() % bound); }

// One small change: a bit, a byte, a number at the edge of its range, a piece taken out, doubled or
// brought from another file, or the end cut off.
void mutate(Bytes& bytes, const std::vector<Bytes>& corpus, Random& random) {
  static constexpr uint64_t kEdges[] = {0,          1,          0x7f,       0x80,        0xff,
                                        0x7fffffff, 0x80000000, 0xffffffff, ~uint64_t{0}};
  if (bytes.empty()) bytes.push_back(0);
  const size_t at = below(random, bytes.size());
  const size_t length = 1 + below(random, std::min<size_t>(16, bytes.size() - at));
  const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  switch (below(random, 7)) {
    case 0: bytes[at] = static_cast<uint8_t>(bytes[at] ^ (1u << below(random, 8))); break;
    case 1: bytes[at] = static_cast<uint8_t>(random()); break;
    case 2: {
      const uint64_t edge = kEdges[below(random, std::size(kEdges))];
      std::memcpy(&bytes[at], &edge, std::min<size_t>(8, bytes.size() - at));
      break;
    }
    case 3: bytes.erase(place, place + static_cast<std::ptrdiff_t>(length)); break;
    case 4: {
      const Bytes piece(place, place + static_cast<std::ptrdiff_t>(length));
      bytes.insert(place, piece.begin(), piece.end());
      break;
    }
    case 5: {
      const Bytes& other = corpus[below(random, corpus.size())];
      if (other.empty()) break;
      const auto from = other.begin() + static_cast<std::ptrdiff_t>(below(random, other.size()));
      const auto most = std::min<std::ptrdiff_t>(64, other.end() - from);
      bytes.insert(place, from, from + most);
      break;
    }
    default: bytes.resize(at); break;
  }
  if (bytes.size() > kMaxBytes) bytes.resize(kMaxBytes);
}

Bytes readAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

void collect(const std::filesystem::path& path, std::vector<std::filesystem::path>& files) {
  if (!std::filesystem::is_directory(path)) return files.push_back(path);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
}

}  // namespace

int main(int argc, char** argv) {
  unsigned long runs = 10'000, seed = 1;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("-runs=")) {
      runs = std::stoul(argument.substr(6));
    } else if (argument.starts_with("-seed=")) {
      seed = std::stoul(argument.substr(6));
    } else {
      if (!std::filesystem::exists(argument)) {
        std::printf("no such seeds: %s\n", argument.c_str());
        return 1;
      }
      collect(argument, files);
    }
  }
  std::sort(files.begin(), files.end());  // the same order everywhere
  std::vector<Bytes> corpus{Bytes{}};
  for (const auto& file : files) corpus.push_back(readAll(file));
  for (const Bytes& bytes : corpus) LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  Random random(seed);
  for (unsigned long run = 0; run < runs; ++run) {
    Bytes bytes = corpus[below(random, corpus.size())];
    for (size_t changes = 1 + below(random, 4); changes > 0; --changes)
      mutate(bytes, corpus, random);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu files, %lu mutations of them\n", corpus.size() - 1, runs);
}
