#include "times.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "holdings.h"

namespace tutti::faults {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlowness = 4;
#else
constexpr int kSlowness = 1;
#endif
constexpr std::chrono::seconds kBoundOfTest{30};

double seconds(Clock::duration span) { return std::chrono::duration<double>(span).count(); }

struct Row {
  double took;
  double bound;
  bool isLate() const { return took >= bound; }
};

void append(const std::string& line) {
  const char* path = std::getenv("FAULTS_TABLE");
  if (path == nullptr) return;
  const int file = ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  // One write: several tests may append at once.
  EXPECT_EQ(::write(file, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  ::close(file);
}

void append(const std::string& name, const Row& row) {
  char times[64];
  std::snprintf(times, sizeof times, "\t%.3f\t%.3f\n", row.took, row.bound);
  append(name + times);
}

class Table : public testing::EmptyTestEventListener {
 public:
  // A late one was of a try that others followed, unless it is the last.
  void keep(const std::string& fault, const Row& row) {
    std::lock_guard lock(mutex_);
    const auto [kept, isNew] = rows_.try_emplace(fault, row);
    if (!isNew && (kept->second.isLate() || row.took > kept->second.took)) kept->second = row;
  }
  void setBound(std::chrono::seconds bound) { bound_ = bound; }

  void OnTestStart(const testing::TestInfo&) override {
    rows_.clear();
    bound_ = kBoundOfTest;
    start_ = Clock::now();
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    const std::string name = std::string(test.test_suite_name()) + ": " + test.name();
    if (test.result()->Skipped()) return append("skipped\t" + name + "\n");
    if (rows_.empty()) {
      const Row whole{seconds(Clock::now() - start_), seconds(bound_ * kSlowness)};
      EXPECT_FALSE(whole.isLate()) << whole.took << " seconds, bound " << whole.bound;
      append(name + " (whole test)", whole);
    }
    for (const auto& [fault, row] : rows_) append(fault, row);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Row> rows_;
  std::chrono::seconds bound_{};
  Clock::time_point start_;
};

// After each test the process holds what it held before, but for what it keeps for ever.
class Leftovers : public testing::EmptyTestEventListener {
 public:
  void allow() { areAllowed_ = true; }

  void OnTestStart(const testing::TestInfo&) override {
    areAllowed_ = false;
    before_ = Holdings();
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (test.result()->Failed() || test.result()->Skipped() || areAllowed_) return;
    std::string text;
    // Threads that have been joined may be listed for a moment yet.
    const auto deadline = Clock::now() + std::chrono::seconds(5);
    while (!(text = tooMuch(Holdings(), before_)).empty() && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(text, "") << "left by " << test.name();
  }

 private:
  Holdings before_;
  bool areAllowed_ = false;
};

// They are googletest's, which deletes them.
template <typename Listener>
Listener* append() {
  auto* made = new Listener;
  testing::UnitTest::GetInstance()->listeners().Append(made);
  return made;
}
Leftovers* const leftovers = append<Leftovers>();
Table* const table = append<Table>();

}  // namespace

void keepTime(const std::string& fault, Clock::duration took, std::chrono::milliseconds bound) {
  EXPECT_LT(seconds(took), seconds(bound)) << fault;
  table->keep(fault, {seconds(took), seconds(bound)});
}

void allowLeftovers(const char* /*why*/) { leftovers->allow(); }

void setBoundOfTest(std::chrono::seconds bound) { table->setBound(bound); }

}  // namespace tutti::faults
