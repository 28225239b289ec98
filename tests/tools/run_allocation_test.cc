#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>

#include "tools/allocation.h"

namespace tutti::tools {
namespace {

using testing::HasSubstr;
using Hosts = std::vector<HostSlots>;
using Variables = std::map<std::string, std::string>;

Result<Allocation> read(const Variables& variables, std::string_view ownHost = "login") {
  return readAllocation(
      [&variables](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      ownHost);
}

TEST(SlurmHosts, AreCountedOutOfBrackets) {
  EXPECT_EQ(parseSlurmHosts("node[01-03,7],gpu2", "2(x3),1,4").value(),
            (Hosts{{"node01", 2}, {"node02", 2}, {"node03", 2}, {"node7", 1}, {"gpu2", 4}}));
  EXPECT_EQ(parseSlurmHosts("a", "").value(), (Hosts{{"a", 1}}));
  EXPECT_EQ(parseSlurmHosts("a,b-c.d", "3,1").value(), (Hosts{{"a", 3}, {"b-c.d", 1}}));
  EXPECT_EQ(parseSlurmHosts("n[8-11]", "1(x4)").value(),
            (Hosts{{"n8", 1}, {"n9", 1}, {"n10", 1}, {"n11", 1}}));
  EXPECT_EQ(parseSlurmHosts("r[1-2]n[098-099]-ib", "").value(),
            (Hosts{{"r1n098-ib", 1}, {"r1n099-ib", 1}, {"r2n098-ib", 1}, {"r2n099-ib", 1}}));
}

TEST(SlurmHosts, ThatCannotBeReadAreRefused) {
  for (const auto& [list, tasks] :
       std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                        {"node[1-3", ""},
                                                        {"node1-3]", ""},
                                                        {"node[[1]]", ""},
                                                        {"node[1],,b", ""},
                                                        {"a,", ""},
                                                        {"node[]", ""},
                                                        {"node[3-1]", ""},
                                                        {"node[1-]", ""},
                                                        {"node[-2]", ""},
                                                        {"node[1,]", ""},
                                                        {"node[a-b]", ""},
                                                        {"node[0000000001-2]", ""},
                                                        {"-oProxyCommand=x", ""},
                                                        {"a b", ""},
                                                        {"node[1-2]", "1"},
                                                        {"node[1-2]", "1(x3)"},
                                                        {"node[1-2]", "1(x"},
                                                        {"node[1-2]", "1(x)"},
                                                        {"node[1-2]", "(x2)"},
                                                        {"node[1-2]", "0(x2)"},
                                                        {"node[1-2]", "5000(x2)"},
                                                        {"node[1-2]", "1(x2),"},
                                                        {"node[1-2]", "-1(x2)"}}) {
    EXPECT_EQ(parseSlurmHosts(list, tasks).status().code(), Code::kInvalidArgument)
        << list << ' ' << tasks;
  }
}

// However many they would be.
TEST(SlurmHosts, OfHugeRangesAreRefusedAtOnce) {
  for (const char* list : {"n[0-999999999]", "n[1-4097]", "n[1-4096],m", "a[0-99]b[0-99]",
                           "a[0-63]b[0-63]c[0-1]", "n[0-99999999999999999999]"})
    EXPECT_FALSE(parseSlurmHosts(list, "").ok()) << list;
  EXPECT_EQ(parseSlurmHosts("n[1-4096]", "")->size(), 4096u);
  EXPECT_FALSE(parseSlurmHosts("n", "1(x99999999999)").ok());
}

TEST(Allocation, IsSlurmsWhereItHasOne) {
  const Variables variables = {{"SLURM_JOB_NODELIST", "node[1-2]"},
                               {"SLURM_TASKS_PER_NODE", "4(x2)"},
                               {"SLURM_PROCID", "0"},  // as in a batch script
                               {"SLURM_NTASKS", "8"},
                               {"PBS_NODEFILE", "/nowhere"}};
  auto found = read(variables, "node1");
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->source, "SLURM_JOB_NODELIST");
  EXPECT_EQ(found->hosts, (Hosts{{"node1", 4}, {"node2", 4}}));
}

TEST(Allocation, IsNoneInsideAStepOrUnderAnotherLauncher) {
  Variables variables = {{"SLURM_JOB_NODELIST", "node[1-2]"},
                         {"SLURM_PROCID", "1"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_STEP_ID", "0"}};
  EXPECT_TRUE(read(variables)->hosts.empty());
  variables["SLURM_STEP_ID"] = "4294967290";  // salloc's shell on the first host
  EXPECT_EQ(read(variables)->hosts.size(), 2u);
  variables.erase("SLURM_STEP_ID");
  variables.insert({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_TRUE(read(variables)->hosts.empty());
  EXPECT_TRUE(read({})->hosts.empty());
}

TEST(Allocation, OfThisHostAloneIsNone) {
  for (const char* own : {"node1", "node1.cluster.org"}) {
    EXPECT_TRUE(
        read({{"SLURM_JOB_NODELIST", "node1"}, {"SLURM_TASKS_PER_NODE", "8"}}, own)->hosts.empty());
  }
  EXPECT_TRUE(read({{"SLURM_JOB_NODELIST", "node1.a"}}, "node1")->hosts.empty());
  EXPECT_EQ(read({{"SLURM_JOB_NODELIST", "node1.a"}}, "node1.b")->hosts.size(), 1u);
  EXPECT_EQ(read({{"SLURM_JOB_NODELIST", "node1"}}, "node2")->hosts, (Hosts{{"node1", 1}}));
}

TEST(Allocation, IsPbsFileWithALineASlot) {
  const std::string path = testing::TempDir() + fmt::format("tutti_nodes_{}", ::getpid());
  std::ofstream(path) << "a\na\nb\na\n";
  auto found = read({{"PBS_NODEFILE", path}, {"SLURM_JOB_NODELIST", ""}});
  EXPECT_EQ(found->source, "PBS_NODEFILE");
  EXPECT_EQ(found->hosts, (Hosts{{"a", 3}, {"b", 1}}));
  std::ofstream(path, std::ios::trunc) << "\n";
  EXPECT_THAT(std::string(read({{"PBS_NODEFILE", path}}).status().message()),
              HasSubstr("names no hosts"));
  std::remove(path.c_str());
}

TEST(Allocation, ThatCannotBeReadNamesItsVariable) {
  EXPECT_EQ(read({{"SLURM_JOB_NODELIST", "node[1"}}).status().message(),
            "SLURM_JOB_NODELIST=node[1: a ']' is missing");
  EXPECT_THAT(std::string(read({{"PBS_NODEFILE", "/nowhere"}}).status().message()),
              HasSubstr("PBS_NODEFILE=/nowhere: "));
}

}  // namespace
}  // namespace tutti::tools
