#include "transport/offer.h"

#include <gtest/gtest.h>

namespace tutti::transport {
namespace {

constexpr wire::LinkGeometry kGeometry{.slotCount = 4, .slotBytes = 128};

Token makeToken() {
  Token token;
  for (size_t i = 0; i < token.size(); ++i) token[i] = static_cast<std::byte>(i + 1);
  return token;
}

OfferedMemory makeMemory() { return {.token = makeToken()}; }

TEST(Offer, CarriesItsTokens) {
  OfferedMemory memory = makeMemory();
  const Offer offer = encodeOffer(OfferKind::kShm, kGeometry, memory);
  EXPECT_EQ(decodeOffer(offer, OfferKind::kShm, kGeometry).value(), memory);
  memory.gpuToken.fill(std::byte{9});
  memory.gpuBytes = 4096;
  const Offer withGpu = encodeOffer(OfferKind::kShm, kGeometry, memory);
  EXPECT_EQ(decodeOffer(withGpu, OfferKind::kShm, kGeometry).value(), memory);
}

TEST(Offer, IsRefusedByAnotherTransport) {
  const Offer offer = encodeOffer(OfferKind::kShm, kGeometry, makeMemory());
  EXPECT_EQ(decodeOffer(offer, OfferKind::kLocal, kGeometry).takeStatus().code(),
            Code::kRemoteError);
}

TEST(Offer, IsRefusedForAnotherGeometry) {
  const Offer offer = encodeOffer(OfferKind::kShm, kGeometry, makeMemory());
  const Status count =
      decodeOffer(offer, OfferKind::kShm, {.slotCount = 8, .slotBytes = 128}).takeStatus();
  const Status bytes =
      decodeOffer(offer, OfferKind::kShm, {.slotCount = 4, .slotBytes = 192}).takeStatus();
  EXPECT_EQ(count.code(), Code::kRemoteError);
  EXPECT_EQ(bytes.code(), Code::kRemoteError);
  EXPECT_NE(bytes.message().find("4 slots of 128 bytes"), std::string_view::npos)
      << bytes.message();
  EXPECT_NE(bytes.message().find("4 of 192"), std::string_view::npos) << bytes.message();
}

TEST(Offer, WithAnyByteOutsideTheTokenChangedIsRefused) {
  for (size_t i = 0; i < sizeof(Offer); ++i) {
    if (i >= 16 && i < 32) continue;
    Offer offer = encodeOffer(OfferKind::kLocal, kGeometry, makeMemory());
    offer[i] ^= std::byte{0x40};
    EXPECT_FALSE(decodeOffer(offer, OfferKind::kLocal, kGeometry).ok()) << "byte " << i;
  }
}

TEST(Geometry, ThatNoLinkCanHaveIsRefused) {
  EXPECT_TRUE(checkGeometry(kGeometry).ok());
  for (const wire::LinkGeometry& bad :
       {wire::LinkGeometry{0, 64}, {3, 64}, {2048, 64}, {4, 0}, {4, 65}, {4, 32u << 20}}) {
    EXPECT_EQ(checkGeometry(bad).code(), Code::kInternalError)
        << bad.slotCount << " x " << bad.slotBytes;
  }
}

}  // namespace
}  // namespace tutti::transport
