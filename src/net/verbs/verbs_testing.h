// For tests: adapters, fabrics and lanes over the libibverbs of tests/fakes/verbs.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/verbs/verbs_fabric.h"

namespace tutti::net::verbs {

inline constexpr const char* kInfiniBand = "active ib 64 2 ";  // 200 Gb/s
inline constexpr const char* kRoce = "active eth 32 2 0\ngid 0 v1 fe80::1\n";

// A description of adapters on file.
class Machine {
 public:
  Machine() : folder_(testing::TempDir() + fmt::format("tutti_verbs_{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~Machine() { std::filesystem::remove_all(folder_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // `more`: what stands behind the rest.
  Machine& device(const std::string& name, const std::string& address, int mostInline = 64,
                  const std::string& more = "") {
    const std::string place = folder_ + "/" + name;
    std::filesystem::create_directories(place);
    std::filesystem::create_symlink("../../../" + address, place + "/device");
    text_ += fmt::format("device {} {} {} {}\n", name, place, mostInline, more);
    portCount_ = 0;
    return *this;
  }
  // `rest`: what stands behind "port N".
  Machine& port(const std::string& rest) {
    text_ += fmt::format("port {} {}\n", ++portCount_, rest);
    return *this;
  }
  // Two InfiniBand cards, the first with two ports.
  Machine& usual() {
    return device("mlx5_0", "0000:17:00.0")
        .port(kInfiniBand + std::string("5\ngid 0 ib fe80::5"))
        .device("mlx5_1", "0000:17:00.1")
        .port(kInfiniBand + std::string("6\ngid 0 ib fe80::6"))
        .device("mlx5_2", "0000:3b:00.0")
        .port(kInfiniBand + std::string("7\ngid 0 ib fe80::7"));
  }
  void write() const {
    const std::string path = folder_ + "/devices";
    std::ofstream(path) << text_;
    ASSERT_EQ(::setenv("FAKE_VERBS_DEVICES", path.c_str(), 1), 0);
  }

 private:
  const std::string folder_;
  std::string text_;
  int portCount_ = 0;
};

struct Lanes {
  std::unique_ptr<Lane> sender;
  std::unique_ptr<Lane> receiver;
};

class Verbs : public testing::Test {
 protected:
  Verbs() {
    order("");
    options_.library = TUTTI_FAKE_VERBS;
    options_.clock = &clock_;
  }
  ~Verbs() override {
    ::unsetenv("FAKE_VERBS");
    ::unsetenv("FAKE_VERBS_DEVICES");
  }
  static void order(const std::string& what) { ::setenv("FAKE_VERBS", what.c_str(), 1); }

  Result<std::unique_ptr<Fabric>> openFabric() {
    machine_.write();
    return open(options_, systemRng());
  }
  static Result<Lanes> connect(Fabric& fabric, size_t to = 0, size_t from = 0,
                               int trafficClass = kNoTrafficClass) {
    TUTTI_TRY_ASSIGN(const auto listener,
                     fabric.listen({.device = to, .trafficClass = trafficClass}));
    TUTTI_TRY_ASSIGN(const auto dialer, fabric.dial({.device = from, .trafficClass = trafficClass},
                                                    listener->handle()));
    Lanes lanes;
    TUTTI_TRY_ASSIGN(lanes.receiver, listener->accept());
    EXPECT_EQ(lanes.receiver, nullptr);
    TUTTI_TRY_ASSIGN(lanes.sender, dialer->connect());
    listener->hear(dialer->answer());
    TUTTI_TRY_ASSIGN(lanes.receiver, listener->accept());
    return lanes;
  }
  // A fabric and a pair of lanes for who needs no more.
  void connectUsual() {
    auto fabric = openFabric();
    ASSERT_TRUE(fabric.ok()) << fabric.status().message();
    fabric_ = std::move(fabric).value();
    auto lanes = connect(*fabric_);
    ASSERT_TRUE(lanes.ok()) << lanes.status().message();
    lanes_ = std::move(lanes).value();
  }
  // Until there is a request, or a failure.
  static Result<Lane::Request> post(Lane& lane, std::span<std::byte> bytes, Lane::Memory memory) {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      TUTTI_TRY_ASSIGN(const Lane::Request request, lane.post(bytes, memory));
      if (request) return request;
      std::this_thread::yield();
    }
    return Status(Code::kInternalError, "nothing was posted");
  }
  static Result<size_t> await(Lane& lane, Lane::Request request) {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      TUTTI_TRY_ASSIGN(const std::optional<size_t> bytes, lane.test(request));
      if (bytes) return *bytes;
      std::this_thread::yield();
    }
    return Status(Code::kInternalError, "nothing came");
  }
  // Sends messages one by one until one fails.
  Status sendUntilItFails(int count = 40) {
    std::vector<std::byte> out(5000), in(5000);
    TUTTI_TRY_ASSIGN(const Lane::Memory outMemory, lanes_.sender->enroll(out));
    TUTTI_TRY_ASSIGN(const Lane::Memory inMemory, lanes_.receiver->enroll(in));
    const auto sendOne = [&]() -> Status {
      TUTTI_TRY_ASSIGN(const auto receive, post(*lanes_.receiver, in, inMemory));
      TUTTI_TRY_ASSIGN(const auto send, post(*lanes_.sender, out, outMemory));
      TUTTI_TRY(await(*lanes_.sender, send).takeStatus());
      return await(*lanes_.receiver, receive).takeStatus();
    };
    Status status;
    for (int i = 0; i < count && status.ok(); ++i) status = sendOne();
    lanes_.sender->release(outMemory);
    lanes_.receiver->release(inMemory);
    return status;
  }

  static constexpr int kMostAttempts = 10'000'000;
  ManualClock clock_;
  VerbsOptions options_;
  Machine machine_;
  std::unique_ptr<Fabric> fabric_;
  Lanes lanes_;  // gone before their fabric
};

}  // namespace tutti::net::verbs
