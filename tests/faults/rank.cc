// One rank as a process, driven by arguments: what faults_test.py puts into trouble.
//
//   fault_rank RANK COUNT STEP...
//
// Rank 0 prints "id HEX"; the others read that line from standard input. Each step then prints
// "STEP CODE MILLISECONDS MESSAGE", with line feeds of the message as "\n".
//   allreduce:COUNT[:float|int[:sum|max]]   broadcast:COUNT:ROOT   send:PEER:COUNT recv:PEER:COUNT
//   loop                                    all-reduces until one fails
//   sleep:MS   exit (without destroy)   destroy   finalize   line (waits for a line on stdin)
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> split(const std::string& step) {
  std::vector<std::string> parts;
  for (size_t start = 0;;) {
    const size_t colon = step.find(':', start);
    parts.push_back(step.substr(start, colon - start));
    if (colon == std::string::npos) return parts;
    start = colon + 1;
  }
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '\n' ? std::string("\\n") : std::string(1, c);
  return result;
}

class Rank {
 public:
  Rank(ncclComm_t comm) : comm_(comm) {}

  ncclResult_t run(const std::vector<std::string>& step) {
    const std::string& verb = step[0];
    const auto number = [&step](size_t at) { return std::stoul(step.at(at)); };
    if (verb == "loop") {
      for (;;) {
        if (const ncclResult_t result = allReduce({"", "64"}); result != ncclSuccess) return result;
      }
    }
    if (verb == "sleep") std::this_thread::sleep_for(std::chrono::milliseconds(number(1)));
    if (verb == "exit") std::exit(0);
    if (verb == "line") {
      std::string line;
      std::getline(std::cin, line);
    }
    if (verb == "destroy") return ncclCommDestroy(comm_);
    if (verb == "finalize") return ncclCommFinalize(comm_);
    if (verb == "allreduce") return allReduce(step);
    if (verb == "broadcast") {
      resize(number(1));
      return ncclBroadcast(input_.data(), output_.data(), number(1), ncclFloat,
                           static_cast<int>(number(2)), comm_, nullptr);
    }
    if (verb == "send") {
      resize(number(2));
      return ncclSend(input_.data(), number(2), ncclFloat, static_cast<int>(number(1)), comm_,
                      nullptr);
    }
    if (verb == "recv") {
      resize(number(2));
      return ncclRecv(output_.data(), number(2), ncclFloat, static_cast<int>(number(1)), comm_,
                      nullptr);
    }
    return ncclSuccess;
  }

 private:
  ncclResult_t allReduce(const std::vector<std::string>& step) {
    const size_t count = std::stoul(step.at(1));
    resize(count);
    const bool isInt = step.size() > 2 && step[2] == "int";
    const bool isMax = step.size() > 3 && step[3] == "max";
    return ncclAllReduce(input_.data(), output_.data(), count, isInt ? ncclInt : ncclFloat,
                         isMax ? ncclMax : ncclSum, comm_, nullptr);
  }
  void resize(size_t count) {
    input_.resize(count);
    output_.resize(count);
  }

  ncclComm_t comm_;
  std::vector<float> input_;
  std::vector<float> output_;
};

ncclUniqueId meet(int rank) {
  ncclUniqueId id;
  if (rank == 0) {
    if (ncclGetUniqueId(&id) != ncclSuccess) std::exit(3);
    std::printf("id ");
    for (const char c : id.internal) std::printf("%02x", static_cast<unsigned char>(c));
    std::printf("\n");
    std::fflush(stdout);
    return id;
  }
  std::string line;
  std::getline(std::cin, line);
  for (size_t i = 0; i < sizeof id.internal && 2 * i + 1 < line.size(); ++i)
    id.internal[i] = static_cast<char>(std::stoi(line.substr(2 * i, 2), nullptr, 16));
  return id;
}

template <typename Body>
void report(const std::string& step, const Body& body) {
  const auto start = Clock::now();
  const ncclResult_t result = body();
  const auto spent =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
  const std::string message = result == ncclSuccess ? "" : ncclGetLastError(nullptr);
  std::printf("%s %d %ld %s\n", step.c_str(), static_cast<int>(result), static_cast<long>(spent),
              escaped(message).c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int rank = std::atoi(argv[1]);
  const ncclUniqueId id = meet(rank);
  ncclComm_t comm = nullptr;
  report("init", [&] { return ncclCommInitRank(&comm, std::atoi(argv[2]), id, rank); });
  if (comm == nullptr) return 1;
  Rank runner(comm);
  for (int i = 3; i < argc; ++i) report(argv[i], [&] { return runner.run(split(argv[i])); });
  std::_Exit(0);
}
