#include "bootstrap/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "bootstrap/bytes.h"

namespace tutti::bootstrap {
namespace {

using ::testing::HasSubstr;

Contact someContact() {
  return {.address = SocketAddress::parse("10.0.0.5:77").value(),
          .processHash = 12345,
          .who = "node:9"};
}

TEST(Messages, ReportSurvivesTheWire) {
  const Report report{.rank = Rank{3},
                      .rankCount = 8,
                      .timeout = std::chrono::milliseconds(300),
                      .contact = someContact()};
  const std::optional<Report> back = decodeReport(encode(report));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->rank, Rank{3});
  EXPECT_EQ(back->rankCount, 8);
  EXPECT_EQ(back->timeout.count(), 300);
  EXPECT_EQ(back->contact.address.text(), "10.0.0.5:77");
  EXPECT_EQ(back->contact.processHash, 12345u);
  EXPECT_EQ(back->contact.who, "node:9");
}

TEST(Messages, ReportsOutOfRangeAreRefused) {
  const auto refused = [](int32_t rank, int32_t count) {
    return !decodeReport(encode(Report{.rank = Rank{rank}, .rankCount = count, .contact = {}}));
  };
  EXPECT_TRUE(refused(-1, 4));
  EXPECT_TRUE(refused(4, 4));
  EXPECT_TRUE(refused(0, 0));
  EXPECT_TRUE(refused(0, -5));
  EXPECT_TRUE(refused(0, kMaxRankCount + 1));
  EXPECT_FALSE(refused(0, kMaxRankCount));
}

TEST(Messages, ShortAndLongBytesAreRefused) {
  const std::vector<std::byte> report = encode(Report{.contact = someContact()});
  for (size_t cut = 0; cut < report.size(); ++cut) {
    EXPECT_FALSE(decodeReport(std::span(report).first(cut)));
  }
  std::vector<std::byte> longer = report;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decodeReport(longer));
}

TEST(Messages, AnswerSurvivesTheWireAndIsRangeChecked) {
  Answer answer;
  answer.epoch = 5;
  answer.peers.push_back({Rank{6}, someContact()});
  const std::vector<std::byte> bytes = encode(answer);
  ASSERT_TRUE(decodeAnswer(bytes, 7));
  EXPECT_EQ(decodeAnswer(bytes, 7)->peers[0].rank, Rank{6});
  EXPECT_FALSE(decodeAnswer(bytes, 6));
  std::vector<std::byte> many = bytes;
  storeLittle(&many[8], uint32_t{0xffffffff});
  EXPECT_FALSE(decodeAnswer(many, 7));
}

TEST(Messages, LongNamesAreCutAndControlCharactersDoNotReachTheLog) {
  Contact contact = someContact();
  contact.who = std::string(300, 'x');
  EXPECT_EQ(decodeContact(encode(contact))->who.size(), 91u);
  contact.who = "evil\n\x1b[2J:1";
  EXPECT_EQ(decodeContact(encode(contact))->who, "evil??[2J:1");
}

TEST(Messages, FailureKeepsCodeAndTextAndIsNeverOk) {
  const Status back = decodeFailure(encode(Status(Code::kInvalidUsage, "two ranks 3")));
  EXPECT_EQ(back.code(), Code::kInvalidUsage);
  EXPECT_EQ(back.message(), "two ranks 3");
  EXPECT_EQ(decodeFailure({}).code(), Code::kRemoteError);
  for (int code : {0, 7, 200}) {
    const std::array<std::byte, 2> bytes{static_cast<std::byte>(code), std::byte{'x'}};
    EXPECT_EQ(decodeFailure(bytes).code(), Code::kRemoteError);
  }
}

TEST(MessagesFuzz, RandomBytesAreRefusedOrInRange) {
  SeededRng rng(11);
  const std::vector<std::byte> good = encode(Report{.rankCount = 4, .contact = someContact()});
  for (int round = 0; round < 3'000; ++round) {
    std::vector<std::byte> bytes = round % 2 == 0 ? good : std::vector<std::byte>(rng.below(400));
    if (round % 2 == 1) rng.fill(bytes);
    if (!bytes.empty()) bytes[rng.below(bytes.size())] = static_cast<std::byte>(rng.below(256));
    if (const auto report = decodeReport(bytes)) {
      EXPECT_GE(index(report->rank), 0);
      EXPECT_LT(index(report->rank), report->rankCount);
      EXPECT_LE(report->rankCount, kMaxRankCount);
    }
    if (const auto answer = decodeAnswer(bytes, 4)) {
      EXPECT_LE(answer->peers.size(), 40u);
    }
    EXPECT_FALSE(decodeFailure(bytes).ok());
  }
}

}  // namespace
}  // namespace tutti::bootstrap
