#include "base/handle_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/rng.h"

namespace tutti {
namespace {

class Counted {
 public:
  explicit Counted(std::atomic<int>& alive, int value = 0) : alive_(alive), value_(value) {
    ++alive_;
  }
  ~Counted() {
    value_ = -1;
    --alive_;
  }
  int value() const { return value_; }

 private:
  std::atomic<int>& alive_;
  int value_;
};

using Table = HandleTable<Counted>;

// What an owner does: ends the handle, waits for its users, gives the slot back.
bool removeAndRetire(Table& table, void* handle) {
  const std::shared_ptr<Counted> object = table.remove(handle);
  if (object == nullptr) return false;
  while (!table.isUnpinned(handle)) std::this_thread::yield();
  table.retire(handle);
  return true;
}

TEST(HandleTable, FindsTheObjectAgain) {
  std::atomic<int> alive{0};
  Table table(1);
  void* handle = table.insert(std::make_shared<Counted>(alive, 42));
  ASSERT_NE(handle, nullptr);
  auto pin = table.pin(handle);
  ASSERT_TRUE(pin);
  EXPECT_EQ(pin->value(), 42);
  EXPECT_EQ(pin.share()->value(), 42);
}

TEST(HandleTable, KnowsNoHandleItDidNotGive) {
  std::atomic<int> alive{0};
  Table table(1);
  Table other(2);
  int local = 0;
  void* foreign = other.insert(std::make_shared<Counted>(alive));
  for (void* handle : {static_cast<void*>(nullptr), static_cast<void*>(&local), foreign,
                       reinterpret_cast<void*>(~uintptr_t{0}), reinterpret_cast<void*>(8)}) {
    EXPECT_FALSE(table.pin(handle)) << handle;
    EXPECT_EQ(table.remove(handle), nullptr) << handle;
  }
}

TEST(HandleTable, KnowsNoMadeUpHandle) {
  std::atomic<int> alive{0};
  Table table(1);
  void* handle = table.insert(std::make_shared<Counted>(alive));
  SeededRng rng(7);
  for (int i = 0; i < 100'000; ++i) {
    // Near misses: a valid handle with some bits changed.
    const auto changed = reinterpret_cast<uintptr_t>(handle) ^ (uintptr_t{1} << rng.below(48)) ^
                         (rng.next() & 0xffff'fff0u);
    void* guess = reinterpret_cast<void*>(changed);
    if (guess != handle) {
      EXPECT_FALSE(table.pin(guess)) << guess;
    }
  }
}

TEST(HandleTable, ARemovedHandleIsNoLongerKnown) {
  std::atomic<int> alive{0};
  Table table(1);
  void* handle = table.insert(std::make_shared<Counted>(alive));
  EXPECT_TRUE(removeAndRetire(table, handle));
  EXPECT_EQ(alive, 0);
  EXPECT_FALSE(table.pin(handle));
  EXPECT_FALSE(removeAndRetire(table, handle));
}

TEST(HandleTable, AReusedSlotDoesNotAnswerToItsOldHandles) {
  std::atomic<int> alive{0};
  Table table(1);
  std::set<void*> old;
  for (int i = 0; i < 1000; ++i) {
    void* handle = table.insert(std::make_shared<Counted>(alive, i));
    EXPECT_TRUE(old.insert(handle).second) << "the same value twice";
    for (void* stale : old) {
      EXPECT_EQ(static_cast<bool>(table.pin(stale)), stale == handle);
    }
    EXPECT_TRUE(removeAndRetire(table, handle));
  }
}

TEST(HandleTable, APinKeepsTheObjectWhileItIsBeingRemoved) {
  std::atomic<int> alive{0};
  Table table(1);
  void* handle = table.insert(std::make_shared<Counted>(alive, 5));
  auto pin = table.pin(handle);
  EXPECT_NE(table.remove(handle), nullptr);
  EXPECT_FALSE(table.pin(handle)) << "no new users";
  EXPECT_FALSE(table.isUnpinned(handle));
  EXPECT_EQ(pin->value(), 5);
  pin = Table::Pin();
  EXPECT_TRUE(table.isUnpinned(handle));
  table.retire(handle);
  EXPECT_EQ(alive, 0);
}

// A thread's first pin of a slot counts among all threads' pins, its later ones among its own.
TEST(HandleTable, EachOfAThreadsPinsKeepsTheObject) {
  std::atomic<int> alive{0};
  Table table(0x01);
  void* handle = table.insert(std::make_shared<Counted>(alive));
  Table::Pin first = table.pin(handle);
  Table::Pin second = table.pin(handle);
  std::optional<Table::Pin> third = table.pin(handle);
  std::thread([&] { EXPECT_EQ(table.pin(handle)->value(), 0); }).join();
  const std::shared_ptr<Counted> removed = table.remove(handle);
  EXPECT_FALSE(table.pin(handle));
  third.reset();
  EXPECT_FALSE(table.isUnpinned(handle));
  first = {};
  EXPECT_FALSE(table.isUnpinned(handle));
  second = {};
  EXPECT_TRUE(table.isUnpinned(handle));
  table.retire(handle);
}

TEST(HandleTable, IsFullAtItsLimitAndTakesMoreAfterARemoval) {
  std::atomic<int> alive{0};
  Table table(1);
  std::vector<void*> handles;
  for (uint32_t i = 0; i < Table::kMaxHandles; ++i) {
    handles.push_back(table.insert(std::make_shared<Counted>(alive)));
    ASSERT_NE(handles.back(), nullptr);
  }
  EXPECT_EQ(table.insert(std::make_shared<Counted>(alive)), nullptr);
  EXPECT_TRUE(removeAndRetire(table, handles.front()));
  EXPECT_NE(table.insert(std::make_shared<Counted>(alive)), nullptr);
  EXPECT_EQ(std::set<void*>(handles.begin(), handles.end()).size(), handles.size());
}

// Users pin what one owner removes and replaces: nobody ever sees a dead object. Sanitizers watch.
TEST(HandleTable, UsersAndARemoverDoNotMeet) {
  std::atomic<int> alive{0};
  Table table(1);
  std::atomic<void*> current{table.insert(std::make_shared<Counted>(alive, 1))};
  std::atomic<bool> stop{false};
  std::atomic<int> used{0};
  std::vector<std::jthread> users;
  for (int i = 0; i < 4; ++i) {
    users.emplace_back([&] {
      while (!stop) {
        if (auto pin = table.pin(current)) {
          EXPECT_EQ(pin->value(), 1);
          ++used;
        }
        std::this_thread::yield();
      }
    });
  }
  while (used == 0) std::this_thread::yield();
  for (int round = 0; round < 2000; ++round) {
    void* old = current.exchange(table.insert(std::make_shared<Counted>(alive, 1)));
    EXPECT_TRUE(removeAndRetire(table, old));
  }
  stop = true;
  users.clear();
  EXPECT_EQ(alive, 1);
}

TEST(HandleTable, OfManyRemoversOneSucceeds) {
  std::atomic<int> alive{0};
  Table table(1);
  for (int round = 0; round < 200; ++round) {
    void* handle = table.insert(std::make_shared<Counted>(alive));
    std::atomic<int> removed{0};
    {
      std::vector<std::jthread> removers;
      for (int i = 0; i < 3; ++i) {
        removers.emplace_back([&] {
          if (table.remove(handle) != nullptr) ++removed;
        });
      }
    }
    EXPECT_EQ(removed, 1);
    table.retire(handle);
  }
  EXPECT_EQ(alive, 0);
}

TEST(HandleTable, ThreadsInsertAndRemoveSideBySide) {
  std::atomic<int> alive{0};
  Table table(1);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int n = 0; n < 1000; ++n) {
          void* handle = table.insert(std::make_shared<Counted>(alive, i * 1000 + n));
          ASSERT_NE(handle, nullptr);
          EXPECT_EQ(table.pin(handle)->value(), i * 1000 + n);
          EXPECT_TRUE(removeAndRetire(table, handle));
        }
      });
    }
  }
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace tutti
