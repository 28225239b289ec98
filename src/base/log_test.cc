#include "base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/log_setup.h"
#include "base/settings.h"
#include "base/status.h"

namespace tutti::log {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/tutti_log_XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    folder_ = path;
    file_ = folder_ + "/log";
  }
  void TearDown() override {
    configure({});
    setThreadDevice(-1);
    ::unlink(file_.c_str());
    ::rmdir(folder_.c_str());
  }
  void open(Level level, uint32_t subsystems = kDefaultSubsystems) {
    configure({.level = level, .subsystems = subsystems, .file = file_, .timestampLevels = 0});
  }
  static std::string read(const std::string& path) {
    std::ifstream in(path);
    std::stringstream content;
    content << in.rdbuf();
    return content.str();
  }
  std::string content() { return read(file_); }
  std::vector<std::string> lines() {
    std::vector<std::string> all;
    std::istringstream in(content());
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }
  static std::string prefix() {
    char host[256] = "";
    ::gethostname(host, sizeof host);
    std::string name = host;
    name = name.substr(0, name.find('.'));
    return name + ":" + std::to_string(::getpid()) + ":" + std::to_string(::gettid());
  }

  std::string folder_;
  std::string file_;
};

TEST_F(LogTest, AnInfoLineHasHostPidTidAndDevice) {
  open(Level::kInfo);
  setThreadDevice(3);
  info(Subsystem::kInit, "rank {} is here", 3);
  EXPECT_EQ(content(), prefix() + " [3] NCCL INFO rank 3 is here\n");
}

TEST_F(LogTest, AWarningFollowsABlankLineAndNamesWhereItComesFrom) {
  open(Level::kWarn);
  warn("peer {} is gone", 5);
  ASSERT_THAT(lines(), SizeIs(2));
  EXPECT_EQ(lines()[0], "");
  EXPECT_THAT(lines()[1], StartsWith(prefix() + " [-1] base/log_test.cc:"));
  EXPECT_THAT(lines()[1], MatchesRegex(".*log_test.cc:[0-9]+ .TestBody. NCCL WARN peer 5 is gone"));
}

Status failWithoutNamespace() { return remoteError("rank {} left", 2); }

TEST_F(LogTest, AnErrorIsLoggedOnceWithThePlaceThatMadeIt) {
  open(Level::kWarn);
  const Status status = failWithoutNamespace();
  EXPECT_EQ(status.code(), Code::kRemoteError);
  ASSERT_THAT(lines(), SizeIs(2));
  EXPECT_THAT(lines()[1], HasSubstr("(failWithoutNamespace) NCCL WARN rank 2 left"));
}

TEST_F(LogTest, ASystemErrorSaysWhatFailedAndWhy) {
  open(Level::kWarn);
  const Status status = systemError("open", "/tmp/x", ENOENT);
  EXPECT_EQ(status.message(), "open /tmp/x: No such file or directory");
  EXPECT_THAT(content(), HasSubstr("(TestBody) NCCL WARN open /tmp/x: No such file"));
}

TEST_F(LogTest, TimesStandInFrontOfTheLevelsThatWantThem) {
  configure({.level = Level::kInfo,
             .file = file_,
             .timestampFormat = "<%Y> ",
             .timestampLevels = levelBit(Level::kWarn)});
  info(Subsystem::kInit, "a");
  warn("b");
  ASSERT_THAT(lines(), SizeIs(3));
  EXPECT_THAT(lines()[0], StartsWith(prefix()));
  EXPECT_THAT(lines()[2], MatchesRegex("<2[0-9][0-9][0-9]> .* NCCL WARN b"));
}

TEST_F(LogTest, AnOverlongOrOddTimeFormatIsHarmless) {
  const std::string format(10'000, '%');
  configure({.level = Level::kWarn, .file = file_, .timestampFormat = format});
  warn("a");
  configure({.level = Level::kWarn, .file = file_, .timestampFormat = "%n%t%"});
  warn("b");
  EXPECT_THAT(content(), HasSubstr("NCCL WARN b"));
}

TEST_F(LogTest, LevelsAndSubsystemsDecideWhatIsPrinted) {
  open(Level::kInfo, static_cast<uint32_t>(Subsystem::kNet));
  EXPECT_TRUE(isEnabled(Level::kInfo, Subsystem::kNet));
  EXPECT_FALSE(isEnabled(Level::kInfo, Subsystem::kInit));
  EXPECT_FALSE(isEnabled(Level::kTrace, Subsystem::kNet));
  info(Subsystem::kInit, "no");
  trace(Subsystem::kNet, "no");
  EXPECT_EQ(content(), "");
  open(Level::kInfo, 0);
  EXPECT_TRUE(isEnabled(Level::kWarn, Subsystem::kAll)) << "warnings know no subsystem";
  open(Level::kVersion);
  EXPECT_FALSE(isEnabled(Level::kWarn, Subsystem::kAll));
  configure({});
  EXPECT_FALSE(isEnabled(Level::kVersion, Subsystem::kAll));
}

TEST_F(LogTest, TraceAndCallLinesHaveTheirOwnForms) {
  open(Level::kTrace, static_cast<uint32_t>(Subsystem::kAll));
  trace(Subsystem::kNet, "step");
  trace(Subsystem::kCall, "ncclAllReduce({})", 1);
  ASSERT_THAT(lines(), SizeIs(2));
  EXPECT_EQ(lines()[0], prefix() + " [-1] NCCL TRACE step");
  EXPECT_EQ(lines()[1], prefix() + " NCCL CALL ncclAllReduce(1)");
}

TEST_F(LogTest, ALongLineIsCutAt1024Bytes) {
  open(Level::kInfo);
  info(Subsystem::kInit, "{}", std::string(1 << 20, 'x'));
  EXPECT_THAT(content(), SizeIs(kMaxLineBytes));
  EXPECT_TRUE(content().ends_with("x\n"));
}

TEST_F(LogTest, ACutLeavesNoHalfOfACharacter) {
  for (size_t shift = 0; shift < 4; ++shift) {
    open(Level::kInfo);
    const size_t before = content().size();
    std::string text(shift, 'x');
    for (int i = 0; i < 600; ++i) text += "\xe2\x82\xac";  // the euro sign
    info(Subsystem::kInit, "{}", text);
    const std::string line = content().substr(before);
    EXPECT_TRUE(line.ends_with("\xe2\x82\xac\n")) << shift;
    EXPECT_LE(line.size(), kMaxLineBytes);
  }
}

TEST_F(LogTest, ATableKeepsItsLinesAndEndsAt4096Bytes) {
  open(Level::kInfo);
  info(Subsystem::kInit, "who called what\nrank 0: x\nrank 1: y\n");
  EXPECT_EQ(content(), prefix() + " [-1] NCCL INFO who called what\nrank 0: x\nrank 1: y\n");
  std::string table;
  for (int i = 0; i < 10'000; ++i) table += "row\n";
  configure({});
  open(Level::kInfo);
  const size_t before = content().size();
  info(Subsystem::kInit, "{}", table);
  EXPECT_LE(content().size() - before, kMaxWriteBytes);
  EXPECT_TRUE(content().ends_with("\n"));
}

TEST_F(LogTest, ControlCharactersFromOutsideAreDefused) {
  open(Level::kInfo);
  info(Subsystem::kInit, "a\x1b[2Jb\rc{}d\x7f\t.", std::string(1, '\0'));
  EXPECT_THAT(content(), HasSubstr("NCCL INFO a?[2Jb?c?d?\t.\n"));
}

TEST_F(LogTest, FileNamesTakeHostAndPidAndPercent) {
  configure({.level = Level::kInfo, .file = folder_ + "/%h.%p.%%.%x%"});
  info(Subsystem::kInit, "here");
  const std::string host = prefix().substr(0, prefix().find(':'));
  const std::string path = folder_ + "/" + host + "." + std::to_string(::getpid()) + ".%.%x%";
  EXPECT_THAT(read(path), HasSubstr("here"));
  EXPECT_EQ(::unlink(path.c_str()), 0);
}

TEST_F(LogTest, ConfiguringAgainWithTheSameFileKeepsItsLines) {
  open(Level::kInfo);
  info(Subsystem::kInit, "first");
  open(Level::kInfo);
  info(Subsystem::kInit, "second");
  EXPECT_THAT(lines(), SizeIs(2));
}

TEST_F(LogTest, NoFileIsMadeWhenNothingIsLogged) {
  open(Level::kNone);
  EXPECT_NE(::access(file_.c_str(), F_OK), 0);
}

TEST_F(LogTest, AnUnwritableFileCostsOneWarningAndLeavesStandardOutput) {
  testing::internal::CaptureStdout();
  configure({.level = Level::kInfo, .file = folder_ + "/none/log"});
  info(Subsystem::kInit, "goes on");
  info(Subsystem::kInit, "and on");
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_THAT(output, HasSubstr("cannot open log file " + folder_ + "/none/log: No such file"));
  EXPECT_THAT(output, HasSubstr("NCCL INFO goes on\n"));
  EXPECT_EQ(output.find("WARN"), output.rfind("WARN"));
}

TEST_F(LogTest, APipeThatNobodyReadsDoesNotHoldUpTheProgram) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  testing::internal::CaptureStdout();
  open(Level::kInfo);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("cannot open log file"));
}

TEST_F(LogTest, AFullDiskCostsOneWarningAndTheRunGoesOn) {
  UniqueFd full(::open("/dev/full", O_WRONLY));
  if (!full) GTEST_SKIP() << "no /dev/full here";
  testing::internal::CaptureStdout();
  configure({.level = Level::kInfo, .file = "/dev/full"});
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] { info(Subsystem::kInit, "a line"); });
  }
  threads.clear();
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_THAT(output, HasSubstr("cannot write log file /dev/full: No space left"));
  EXPECT_EQ(output.find("WARN"), output.rfind("WARN"));
  size_t found = 0;
  for (size_t at = output.find("a line"); at != std::string::npos;
       at = output.find("a line", at + 1)) {
    ++found;
  }
  EXPECT_EQ(found, 4u) << "the line that found out is not lost";
}

TEST_F(LogTest, AClosedStandardOutputIsSurvived) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDOUT_FILENO);
    configure({.level = Level::kInfo});
    info(Subsystem::kInit, "into the void");
    warn("into the void");
    ::_exit(0);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(LogTest, AForkedChildWritesItsOwnPid) {
  open(Level::kInfo);
  const pid_t child = ::fork();
  if (child == 0) {
    info(Subsystem::kInit, "child");
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_THAT(content(),
              HasSubstr(":" + std::to_string(child) + ":" + std::to_string(child) + " [-1]"));
}

TEST_F(LogTest, LinesOfManyThreadsNeverMix) {
  open(Level::kInfo);
  constexpr int kThreads = 8;
  constexpr int kLines = 200;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([i] {
      const std::string text(static_cast<size_t>(100 + i), static_cast<char>('a' + i));
      for (int n = 0; n < kLines; ++n) info(Subsystem::kInit, "{}", text);
    });
  }
  threads.clear();
  EXPECT_THAT(lines(), SizeIs(kThreads * kLines));
  for (const std::string& line : lines()) {
    const std::string text = line.substr(line.rfind(' ') + 1);
    EXPECT_EQ(text, std::string(text.size(), text[0]));
    EXPECT_EQ(text.size(), 100u + static_cast<size_t>(text[0] - 'a'));
  }
}

TEST_F(LogTest, ReconfiguringUnderWritersIsSafe) {
  open(Level::kInfo);
  std::atomic<bool> stop{false};
  std::atomic<size_t> written{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        info(Subsystem::kInit, "line");
        ++written;
      }
    });
  }
  for (size_t round = 1; round <= 50; ++round) {
    const size_t seen = written;
    configure({.level = Level::kInfo, .file = round % 2 == 0 ? "/dev/null" : file_});
    while (written < seen + 4) std::this_thread::yield();
  }
  stop = true;
  threads.clear();
  open(Level::kInfo);
  info(Subsystem::kInit, "still here");
  EXPECT_THAT(content(), HasSubstr("still here"));
  for (const std::string& line : lines()) EXPECT_THAT(line, HasSubstr(" [-1] NCCL INFO "));
}

TEST_F(LogTest, TheBannerComesOnceAfterEachConfigure) {
  open(Level::kVersion);
  banner();
  banner();
  EXPECT_EQ(content(), "NCCL version 2.28.9+tutti0.1.0\n");
  open(Level::kVersion);
  banner();
  EXPECT_THAT(lines(), SizeIs(2));
}

TEST_F(LogTest, NoBannerWhenLoggingIsOff) {
  open(Level::kNone);
  banner();
  EXPECT_NE(::access(file_.c_str(), F_OK), 0);
}

TEST_F(LogTest, InfoBeginsAfterTheFirstWarningWhenAskedFor) {
  configure({.level = Level::kWarn, .file = file_, .infoAfterWarning = true});
  info(Subsystem::kInit, "before");
  warn("trouble");
  info(Subsystem::kInit, "after");
  EXPECT_THAT(content(), Not(HasSubstr("before")));
  EXPECT_THAT(content(), HasSubstr("after"));
}

TEST_F(LogTest, WritingLeavesErrnoAlone) {
  configure({.level = Level::kWarn, .file = "/dev/full"});
  testing::internal::CaptureStdout();
  errno = EBADMSG;
  warn("x");
  EXPECT_EQ(errno, EBADMSG);
  (void)testing::internal::GetCapturedStdout();
}

Settings settingsOf(std::vector<std::string> environment) {
  return Settings::parse({.environment = std::move(environment), .files = {}});
}

TEST_F(LogTest, SettingsDecideLevelSubsystemsAndTimes) {
  const Settings settings = settingsOf(
      {"NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=^INIT,NET", "NCCL_DEBUG_TIMESTAMP_LEVELS=ALL"});
  const Config config = makeConfig(settings);
  EXPECT_EQ(config.level, Level::kInfo);
  EXPECT_EQ(config.subsystems, 0x3ffffu & ~0x11u);
  EXPECT_NE(config.timestampLevels & levelBit(Level::kInfo), 0u);
  const Settings none = settingsOf({});
  EXPECT_EQ(makeConfig(none).subsystems, kDefaultSubsystems);
  EXPECT_EQ(makeConfig(none).level, Level::kNone);
  EXPECT_EQ(makeConfig(none).timestampLevels, levelBit(Level::kWarn));
  EXPECT_EQ(makeConfig(none).timestampFormat, "[%F %T] ");
}

TEST_F(LogTest, SetUpTellsWhatIsWrongAndWhatWasSet) {
  setUp(settingsOf({"NCCL_DEBUG=INFO", "NCCL_DEBUG_FILE=" + file_, "NCCL_BUFFSIZE=abc",
                    "NCCL_IB_ECE_ENABLE=x", "NCCL_SHM_DISABLE=1"}));
  EXPECT_THAT(content(), HasSubstr("NCCL WARN NCCL_BUFFSIZE=abc (environment): wanted a number"));
  EXPECT_THAT(content(), HasSubstr("NCCL INFO NCCL_SHM_DISABLE set by environment to 1\n"));
  EXPECT_THAT(content(), HasSubstr("NCCL_IB_ECE_ENABLE set by environment to x has no effect"));
}

TEST_F(LogTest, AWrongLevelIsToldThoughLoggingIsOff) {
  setUp(settingsOf({"NCCL_DEBUG=abc", "NCCL_DEBUG_FILE=" + file_}));
  EXPECT_THAT(content(), HasSubstr("NCCL_DEBUG=abc"));
  EXPECT_FALSE(isEnabled(Level::kWarn, Subsystem::kAll));
}

}  // namespace
}  // namespace tutti::log
