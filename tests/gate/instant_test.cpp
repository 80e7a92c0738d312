// Times and spans.
#include "gate/instant.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace fractus::gate {
namespace {

using namespace std::chrono_literals;

// Protects every expiry: a time is read back as it was written.
TEST(Instant, IsReadBackAsWritten) {
  EXPECT_TRUE(rc::check("instant", [] {
    const Instant instant{std::chrono::seconds(*rc::gen::inRange<std::int64_t>(0, 253402300800))};  // up to year 9999
    RC_ASSERT(instant_from(to_text(instant)) == instant);
  }));
  EXPECT_EQ(to_text(Instant(1796083200s)), "2026-12-01T00:00:00Z");
}

// Protects against a time that two readers take for two.
TEST(Instant, OfAnotherSpellingIsNone) {
  for (const char* text :
       {"", "2026-12-01", "2026-12-01T00:00:00", "2026-12-01T00:00:00+00:00", "2026-12-01t00:00:00Z",
        "2026-12-01 00:00:00Z", "2026-12-01T00:00:00.0Z", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z", "2026-12-00T00:00:00Z", "2026-12-01T24:00:00Z", "2026-12-01T00:60:00Z",
        "2026-12-01T00:00:60Z", "+026-12-01T00:00:00Z", "-026-12-01T00:00:00Z", "2026-12-01T00:00:0 Z"})
    EXPECT_FALSE(instant_from(text)) << text;
  EXPECT_TRUE(instant_from("2028-02-29T23:59:59Z"));
}

TEST(Span, HasOneWholeNumberAndOneUnit) {
  EXPECT_EQ(span_from("90s"), 90s);
  EXPECT_EQ(span_from("10m"), 10min);
  EXPECT_EQ(span_from("12h"), 12h);
  EXPECT_EQ(span_from("30d"), 720h);
  EXPECT_EQ(span_from("36525d"), std::chrono::days(36525));
  for (const char* text : {"", "d", "30", "0d", "-1d", "+1d", " 1d", "1d ", "1.5d", "1w", "36526d", "9999999999999999s",
                           "99999999999999999999d", "1dd"})
    EXPECT_FALSE(span_from(text)) << text;
  EXPECT_EQ(to_text(span_from("36h").value()), "36h");
  EXPECT_EQ(to_text(span_from("48h").value()), "2d");
}

// Protects: a machine whose clock was reset would find no envelope expired.
TEST(Clock, ThatWasResetIsImplausible) {
  for (const char* text : {"1970-01-01T00:00:00Z", "2025-12-31T23:59:59Z", "2106-02-08T00:00:00Z"})
    EXPECT_NE(implausible(*instant_from(text)), "") << text;
  for (const char* text : {"2026-01-01T00:00:00Z", "2026-12-01T00:00:00Z", "2060-01-01T00:00:00Z"})
    EXPECT_EQ(implausible(*instant_from(text)), "") << text;
  EXPECT_EQ(implausible(now()), "");
}

}  // namespace
}  // namespace fractus::gate
