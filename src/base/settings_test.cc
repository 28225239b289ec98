#include "base/settings.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "base/rng.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Settings fromEnvironment(std::vector<std::string> environment) {
  return Settings::parse({.environment = std::move(environment), .files = {}});
}

Settings fromFile(std::string content) {
  return Settings::parse(
      {.environment = {}, .files = {{.path = "a.conf", .content = std::move(content)}}});
}

std::vector<std::string> complaintTexts(const Settings& settings) {
  std::vector<std::string> texts;
  for (const SettingComplaint& complaint : settings.complaints()) texts.push_back(complaint.text);
  return texts;
}

TEST(Settings, EachNameIsInTheTableOnceAndHasAReason) {
  std::set<std::string_view> names;
  for (const SettingInfo& info : settingTable()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.reason.empty()) << info.name;
    EXPECT_TRUE(info.name.starts_with("NCCL_") || info.name.starts_with("TUTTI_")) << info.name;
  }
}

TEST(Settings, EachDefaultIsAllowedByItsOwnRow) {
  for (const SettingInfo& info : settingTable()) {
    if (info.defaultValue.empty()) continue;
    const Settings settings =
        fromEnvironment({std::string(info.name) + "=" + std::string(info.defaultValue)});
    EXPECT_THAT(complaintTexts(settings), IsEmpty());
    EXPECT_EQ(settings.text(info.name), info.defaultValue);
  }
}

TEST(Settings, EmptyInputGivesTheDefaultsWithoutComplaint) {
  const Settings settings = fromEnvironment({});
  EXPECT_THAT(settings.complaints(), IsEmpty());
  EXPECT_EQ(settings.text("NCCL_DEBUG"), "NONE");
  EXPECT_EQ(settings.integer("NCCL_BUFFSIZE"), 524288);
  EXPECT_EQ(settings.integer("TUTTI_TIMEOUT_MS"), 10000);
  EXPECT_EQ(settings.integer("NCCL_COMM_BLOCKING"), -1);
  EXPECT_EQ(settings.text("NCCL_SOCKET_IFNAME"), "");
  EXPECT_FALSE(settings.get("NCCL_DEBUG").isSet());
}

TEST(Settings, TakesWordsInAnyCaseAndSpellsThemAsTheTable) {
  const Settings settings = fromEnvironment({"NCCL_DEBUG=info", "TUTTI_DEVICE=HOST"});
  EXPECT_THAT(settings.complaints(), IsEmpty());
  EXPECT_EQ(settings.text("NCCL_DEBUG"), "INFO");
  EXPECT_EQ(settings.integer("NCCL_DEBUG"), 3);
  EXPECT_EQ(settings.text("TUTTI_DEVICE"), "host");
  EXPECT_EQ(settings.get("NCCL_DEBUG").source, "environment");
}

TEST(Settings, TakesBytesWithUnitsAndHexadecimal) {
  EXPECT_EQ(fromEnvironment({"NCCL_BUFFSIZE=64K"}).integer("NCCL_BUFFSIZE"), 65536);
  EXPECT_EQ(fromEnvironment({"NCCL_BUFFSIZE=4m"}).integer("NCCL_BUFFSIZE"), 4 << 20);
  EXPECT_EQ(fromEnvironment({"NCCL_BUFFSIZE=1G"}).integer("NCCL_BUFFSIZE"), 1 << 30);
  EXPECT_EQ(fromEnvironment({"NCCL_BUFFSIZE=0x10000"}).integer("NCCL_BUFFSIZE"), 65536);
  EXPECT_EQ(fromEnvironment({"NCCL_BUFFSIZE=4M"}).text("NCCL_BUFFSIZE"), "4194304");
}

TEST(Settings, TakesTheEndsOfARangeAndRefusesWhatLiesBeyond) {
  EXPECT_EQ(fromEnvironment({"TUTTI_TIMEOUT_MS=200"}).integer("TUTTI_TIMEOUT_MS"), 200);
  EXPECT_EQ(fromEnvironment({"TUTTI_TIMEOUT_MS=86400000"}).integer("TUTTI_TIMEOUT_MS"), 86400000);
  EXPECT_THAT(fromEnvironment({"TUTTI_TIMEOUT_MS=199"}).complaints(), SizeIs(1));
  EXPECT_THAT(fromEnvironment({"TUTTI_TIMEOUT_MS=86400001"}).complaints(), SizeIs(1));
}

TEST(Settings, TakesListsWithAndWithoutNegation) {
  EXPECT_EQ(fromEnvironment({"NCCL_DEBUG_SUBSYS=init,Net"}).text("NCCL_DEBUG_SUBSYS"), "INIT,NET");
  EXPECT_EQ(fromEnvironment({"NCCL_DEBUG_SUBSYS=^coll"}).text("NCCL_DEBUG_SUBSYS"), "^COLL");
  EXPECT_EQ(fromEnvironment({"NCCL_SOCKET_IFNAME==eth0,ib1"}).text("NCCL_SOCKET_IFNAME"),
            "=eth0,ib1");
}

TEST(Settings, TakesAlgorithmsByCollective) {
  const Settings settings = fromEnvironment({"NCCL_ALGO=AllReduce:^OneShot;broadcast:Ring,tree"});
  EXPECT_THAT(settings.complaints(), IsEmpty());
  EXPECT_EQ(settings.text("NCCL_ALGO"), "AllReduce:^oneshot;broadcast:ring,tree");
  EXPECT_THAT(fromEnvironment({"NCCL_ALGO=allreduce:abc"}).complaints(), SizeIs(1));
  EXPECT_THAT(fromEnvironment({"NCCL_ALGO=:ring"}).complaints(), SizeIs(1));
  EXPECT_THAT(fromEnvironment({"NCCL_ALGO=ring;"}).complaints(), SizeIs(1));
}

// Each of these, given to each checked setting, must leave the default in force or be allowed; and
// must never be shown raw.
TEST(Settings, GarbageLeavesTheDefaultInForceAndIsToldWithWhatIsAllowed) {
  const std::string garbage[] = {"",
                                 "abc",
                                 "-1",
                                 "1" + std::string(30, '0'),
                                 "INFO ",
                                 " 1",
                                 "1 ",
                                 "%n%n%s",
                                 std::string(1 << 20, 'x'),
                                 std::string("a\0b", 3),
                                 "1\n2",
                                 "0x",
                                 "1K",
                                 "K",
                                 "--1",
                                 "+1",
                                 "1e3",
                                 "^",
                                 ",",
                                 "a,,b",
                                 "\x1b[31m"};
  for (const SettingInfo& info : settingTable()) {
    if (!info.noEffect.empty()) continue;
    for (const std::string& value : garbage) {
      const Settings settings = fromEnvironment({std::string(info.name) + "=" + value});
      if (settings.complaints().empty()) continue;
      ASSERT_THAT(settings.complaints(), SizeIs(1));
      const SettingComplaint& complaint = settings.complaints()[0];
      EXPECT_EQ(complaint.name, info.name);
      EXPECT_THAT(complaint.text, AllOf(HasSubstr(std::string(info.name)), HasSubstr("wanted")));
      EXPECT_LT(complaint.text.size(), 600u);
      EXPECT_EQ(complaint.text.find('\x1b'), std::string::npos);
      EXPECT_EQ(complaint.text.find('\0'), std::string::npos);
      EXPECT_EQ(settings.text(info.name), info.defaultValue);
      EXPECT_EQ(settings.get(info.name).source, "default");
    }
  }
}

TEST(Settings, EveryKindOfGarbageIsRefusedWhereNumbersAreWanted) {
  for (const std::string value : {"", "abc", "-1", "1000000000000000000000000000000", "5000 ",
                                  " 5000", "%n", "5000ms", "5K", "0x", "9223372036854775808"}) {
    const Settings settings = fromEnvironment({"TUTTI_TIMEOUT_MS=" + value});
    EXPECT_THAT(complaintTexts(settings),
                ElementsAre(AllOf(HasSubstr("200..86400000 ms"), HasSubstr("10000 is in force"))))
        << value;
    EXPECT_EQ(settings.integer("TUTTI_TIMEOUT_MS"), 10000);
  }
}

TEST(Settings, EmptyAndOverlongAndControlCharactersAreRefusedEverywhere) {
  for (const SettingInfo& info : settingTable()) {
    if (!info.noEffect.empty()) continue;
    for (const std::string& value :
         {std::string(), std::string(1 << 20, '1'), std::string("1\0", 2)}) {
      const Settings settings = fromEnvironment({std::string(info.name) + "=" + value});
      EXPECT_THAT(settings.complaints(), SizeIs(1)) << info.name;
    }
  }
}

TEST(Settings, ANumberTooLargeForItsUnitIsRefused) {
  EXPECT_THAT(fromEnvironment({"NCCL_BUFFSIZE=9223372036854775807G"}).complaints(), SizeIs(1));
}

TEST(Settings, SuggestsTheNameThatWasMeant) {
  const std::pair<std::string, std::string> cases[] = {
      {"NCCL_DEBG", "NCCL_DEBUG?"},
      {"NCCL_SOCKET_IF_NAME", "NCCL_SOCKET_IFNAME?"},
      {"NCCL_TIMEOUT_MS", "TUTTI_TIMEOUT_MS?"},
      {"nccl_debug", "NCCL_DEBUG?"},
      {"Tutti_Device", "TUTTI_DEVICE?"},
  };
  for (const auto& [written, meant] : cases) {
    EXPECT_THAT(complaintTexts(fromEnvironment({written + "=1"})),
                ElementsAre(AllOf(HasSubstr(written), HasSubstr("did you mean " + meant))));
  }
}

TEST(Settings, AFarAwayNameIsToldWithoutASuggestion) {
  for (const std::string& name :
       {std::string("NCCL_QWERTYUIOP"), "NCCL_" + std::string(100'000, 'A')}) {
    EXPECT_THAT(
        complaintTexts(fromEnvironment({name + "=1"})),
        ElementsAre(AllOf(HasSubstr("is no setting"), testing::Not(HasSubstr("did you mean")))));
  }
}

TEST(Settings, NamesOfOtherProgramsAreLeftAlone) {
  EXPECT_THAT(
      fromEnvironment({"NCCL_TESTS_MIN_BW=1", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "NCCL_HOME=/x",
                       "NCCL_VERSION=2.28.9-1", "NCCL_OFI_X=1", "PATH=/bin", "NCCL"})
          .complaints(),
      IsEmpty());
}

TEST(Settings, WhatHasNoEffectTakesAnyValueAndSaysSo) {
  const Settings settings = fromEnvironment({"NCCL_RINGS==0 1", "NCCL_PROTO=^LL128"});
  EXPECT_THAT(settings.complaints(), IsEmpty());
  EXPECT_EQ(settings.text("NCCL_RINGS"), "=0 1");
  EXPECT_FALSE(settings.get("NCCL_RINGS").info->noEffect.empty());
}

TEST(Settings, TheFirstOfTwoEqualVariablesWins) {
  EXPECT_EQ(fromEnvironment({"NCCL_DEBUG=WARN", "NCCL_DEBUG=INFO"}).text("NCCL_DEBUG"), "WARN");
}

TEST(SettingsFile, TakesCommentsBlanksCrLfByteOrderMarkAndAMissingLastNewline) {
  const Settings settings = fromFile(
      "\xef\xbb\xbf# all ranks\r\n\r\n  NCCL_DEBUG = INFO  \r\n\tNCCL_SHM_DISABLE=1 # why\r\n"
      "   # more\r\nTUTTI_TIMEOUT_MS=2000");
  EXPECT_THAT(complaintTexts(settings), IsEmpty());
  EXPECT_EQ(settings.text("NCCL_DEBUG"), "INFO");
  EXPECT_EQ(settings.integer("NCCL_SHM_DISABLE"), 1);
  EXPECT_EQ(settings.integer("TUTTI_TIMEOUT_MS"), 2000);
  EXPECT_EQ(settings.get("TUTTI_TIMEOUT_MS").source, "a.conf");
}

TEST(SettingsFile, ComplaintsNameTheLine) {
  const Settings settings =
      fromFile("NCCL_DEBUG=INFO\nnonsense\n=1\nNCCL_DEBUGG=1\nNCCL_BUFFSIZE=1\nNCCL_DEBUG=WARN\n");
  EXPECT_THAT(complaintTexts(settings),
              ElementsAre(HasSubstr("a.conf:2"), HasSubstr("a.conf:3"),
                          AllOf(HasSubstr("a.conf:4"), HasSubstr("did you mean NCCL_DEBUG?")),
                          AllOf(HasSubstr("a.conf:6"), HasSubstr("set again")),
                          AllOf(HasSubstr("a.conf:5"), HasSubstr("4096..1073741824"))));
  EXPECT_EQ(settings.text("NCCL_DEBUG"), "INFO");
}

TEST(SettingsFile, AStrongerSourceOverrulesAWeakerOne) {
  const Settings settings = Settings::parse(
      {.environment = {"NCCL_DEBUG=TRACE"},
       .files = {
           {.path = "system", .content = "NCCL_DEBUG=WARN\nNCCL_BUFFSIZE=8K\nNCCL_SHM_DISABLE=1"},
           {.path = "own", .content = "NCCL_DEBUG=INFO\nNCCL_BUFFSIZE=16K"}}});
  EXPECT_EQ(settings.text("NCCL_DEBUG"), "TRACE");
  EXPECT_EQ(settings.integer("NCCL_BUFFSIZE"), 16384);
  EXPECT_EQ(settings.get("NCCL_BUFFSIZE").source, "own");
  EXPECT_EQ(settings.integer("NCCL_SHM_DISABLE"), 1);
}

TEST(SettingsFile, AFileThatCannotBeReadIsAComplaint) {
  const Settings settings = Settings::parse(
      {.environment = {}, .files = {{.path = "x", .content = "", .problem = "Permission denied"}}});
  EXPECT_THAT(complaintTexts(settings), ElementsAre(AllOf(HasSubstr("x: Permission denied"))));
}

// Whatever bytes come, nothing crashes and every value stays within its row. Sanitizers watch.
TEST(Settings, SurvivesRandomBytes) {
  SeededRng rng(57);
  for (int round = 0; round < 300; ++round) {
    std::string bytes(rng.below(200), '\0');
    rng.fill(std::as_writable_bytes(std::span(bytes)));
    const std::string_view name = settingTable()[rng.below(20)].name;
    const Settings settings = Settings::parse(
        {.environment = {std::string(name) + "=" + bytes, "NCCL_" + bytes},
         .files = {{.path = "f", .content = bytes + "\n" + std::string(name) + "=" + bytes}}});
    EXPECT_EQ(settings.values().size(), settingTable().size());
    EXPECT_GE(settings.integer("TUTTI_TIMEOUT_MS"), 200);
    EXPECT_GE(settings.integer("NCCL_BUFFSIZE"), 4096);
  }
}

TEST(ListAllows, FollowsNcclsRules) {
  EXPECT_TRUE(listAllows("", "x"));
  EXPECT_TRUE(listAllows("a,b", "B"));
  EXPECT_FALSE(listAllows("a,b", "c"));
  EXPECT_FALSE(listAllows("^a,b", "a"));
  EXPECT_TRUE(listAllows("^a,b", "c"));
  EXPECT_TRUE(listAllows("ALL", "c"));
  EXPECT_FALSE(listAllows("^all", "c"));
}

class SettingsLoad : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/tutti_settings_XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    folder_ = path;
    ::setenv("HOME", folder_.c_str(), 1);
    ::unsetenv("NCCL_CONF_FILE");
  }
  void TearDown() override {
    ::unsetenv("NCCL_CONF_FILE");
    for (const std::string& file : files_) ::unlink(file.c_str());
    ::rmdir(folder_.c_str());
  }
  std::string write(const std::string& name, const std::string& content) {
    files_.push_back(folder_ + "/" + name);
    std::ofstream(files_.back()) << content;
    return files_.back();
  }

  std::string folder_;
  std::vector<std::string> files_;
};

TEST_F(SettingsLoad, ReadsTheUsersFile) {
  const std::string path = write(".nccl.conf", "TUTTI_TIMEOUT_MS=700\n");
  const Settings settings = Settings::load();
  EXPECT_EQ(settings.integer("TUTTI_TIMEOUT_MS"), 700);
  EXPECT_EQ(settings.get("TUTTI_TIMEOUT_MS").source, path);
}

TEST_F(SettingsLoad, ReadsTheNamedFileInsteadOfTheUsers) {
  write(".nccl.conf", "TUTTI_TIMEOUT_MS=700\nNCCL_BUFFSIZE=8K\n");
  const std::string named = write("other.conf", "TUTTI_TIMEOUT_MS=900\n");
  ::setenv("NCCL_CONF_FILE", named.c_str(), 1);
  const Settings settings = Settings::load();
  EXPECT_EQ(settings.integer("TUTTI_TIMEOUT_MS"), 900);
  EXPECT_EQ(settings.integer("NCCL_BUFFSIZE"), 524288);
}

TEST_F(SettingsLoad, ANamedFileThatIsMissingADirectoryOrEndlessIsAComplaint) {
  for (const std::string& path : {folder_ + "/none", folder_, std::string("/dev/zero")}) {
    ::setenv("NCCL_CONF_FILE", path.c_str(), 1);
    EXPECT_THAT(complaintTexts(Settings::load()), testing::Contains(HasSubstr(path))) << path;
  }
}

TEST_F(SettingsLoad, ANamedPipeDoesNotHoldUpTheProgram) {
  files_.push_back(folder_ + "/pipe");
  ASSERT_EQ(::mkfifo(files_.back().c_str(), 0600), 0);
  ::setenv("NCCL_CONF_FILE", files_.back().c_str(), 1);
  EXPECT_EQ(Settings::load().integer("TUTTI_TIMEOUT_MS"), 10000);
}

}  // namespace
}  // namespace tutti
