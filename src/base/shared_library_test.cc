#include "base/shared_library.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti {
namespace {

class OpenToAll : public testing::Test {
 protected:
  OpenToAll() {
    for (const char* name : {"closed", "open"}) {
      std::filesystem::create_directories(folder(name));
      std::ofstream(file(name)) << "no library";
      chmod(file(name), 0644);
      chmod(folder(name), 0755);
    }
    chmod(folder("open"), 0777);
  }
  ~OpenToAll() override { std::filesystem::remove_all(root_); }
  std::string folder(const std::string& name) const { return root_ + "/" + name; }
  std::string file(const std::string& name) const { return folder(name) + "/libnccl-net.so"; }
  static void chmod(const std::string& path, mode_t mode) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }

  const std::string root_ = testing::TempDir() + "open_to_all_" + std::to_string(::getpid());
};

TEST_F(OpenToAll, IsWhatTheLoaderWouldTakeFromAFolderOfAnybodys) {
  EXPECT_EQ(openToAll("libnccl-net.so", folder("open")), file("open"));
  EXPECT_EQ(openToAll("libnccl-net.so", "/nowhere:" + folder("open")), file("open"));
  EXPECT_EQ(openToAll("libnccl-net.so", folder("open") + ":" + folder("closed")), file("open"));
}

TEST_F(OpenToAll, IsAFileThatAnybodyMayChange) {
  chmod(file("closed"), 0666);
  EXPECT_EQ(openToAll("libnccl-net.so", folder("closed")), file("closed"));
}

TEST_F(OpenToAll, IsNothingWhereAnotherComesFirstOrAPathWasNamed) {
  EXPECT_EQ(openToAll("libnccl-net.so", folder("closed") + ":" + folder("open")), "");
  EXPECT_EQ(openToAll("libother.so", folder("open")), "");
  EXPECT_EQ(openToAll(file("open"), folder("open")), "");
  EXPECT_EQ(openToAll("libnccl-net.so", ""), "");
}

}  // namespace
}  // namespace tutti
