// From a few blocks to all: traces of one program are told from those of several.
#include "properties/induction.h"

#include <gtest/gtest.h>

#include "properties/all.h"

namespace fractus {
namespace {

using Trace = std::vector<Step>;

Step step(const std::string& operation, std::int64_t extent = 4) { return {operation, {{2, extent}}}; }

// The chunked form in outline: a mask, for each block its slices, scores and state, and the joined rows; then a
// backward, block by block.
Trace chunked(std::int64_t blocks, std::int64_t remainder) {
  Trace trace{step("zeros")};
  const auto block = [&](std::int64_t rows) {
    for (const char* operation : {"slice", "slice", "bmm", "tril", "bmm", "add", "div", "bmm", "add"})
      trace.push_back(step(operation, rows));
  };
  for (std::int64_t b = 0; b < blocks; ++b) block(4);
  if (remainder > 0) block(remainder);
  trace.push_back(step("cat", 4 * blocks + remainder));
  for (std::int64_t b = 0; b < blocks; ++b)
    for (const char* operation : {"mul", "bmm", "add", "add"}) trace.push_back(step(operation));
  return trace;
}

template <class Program>
std::vector<Trace> at(const Program& program, std::int64_t first = 2) {
  return {program(first), program(first + 1), program(first + 2)};
}

// Protects: the claim itself, for a loop over blocks with and without a ragged tail, for nested loops, and for a
// program without a loop whose extents grow with the length.
TEST(Induction, OneProgramAtEveryLength) {
  for (const std::int64_t remainder : {0, 1, 3})
    EXPECT_TRUE(alike(at([&](std::int64_t n) { return chunked(n, remainder); })));
  EXPECT_TRUE(alike(at([](std::int64_t n) {
    return Trace{step("mul", 4 * n), step("cumsum", 4 * n), step("div", 4 * n)};
  })));
  EXPECT_TRUE(alike(at([](std::int64_t n) {
    Trace trace;
    for (std::int64_t b = 0; b < n; ++b) {
      for (int token = 0; token < 4; ++token) trace.insert(trace.end(), {step("mul", 1), step("add", 1)});
      trace.push_back(step("stack"));
    }
    return trace;
  })));
}

// Negative controls: a program that changes at the third block, or at the last one of four; slices that grow from block
// to block; a count that grows by more each time; another operation at one length; too few traces, and none.
TEST(Induction, NoClaimForAProgramThatChanges) {
  const auto loop = [](std::int64_t n, const auto& body) {
    Trace trace;
    for (std::int64_t b = 0; b < n; ++b) body(b, trace);
    return trace;
  };
  for (const std::int64_t change : {2, 3})
    EXPECT_FALSE(alike(at([&](std::int64_t n) {
      return loop(n, [&](std::int64_t b, Trace& t) {
        t.push_back(step("bmm"));
        t.push_back(step(b == change ? "sub" : "add"));
      });
    })));
  EXPECT_FALSE(alike(at([&](std::int64_t n) {
    return loop(n, [](std::int64_t b, Trace& t) { t.insert(t.end(), {step("slice", 4 * b + 4), step("bmm")}); });
  })));
  EXPECT_FALSE(alike(at([&](std::int64_t n) {
    return loop(n * n, [](std::int64_t, Trace& t) { t.insert(t.end(), {step("slice"), step("bmm")}); });
  })));
  EXPECT_FALSE(alike(at([](std::int64_t n) { return Trace{step("mul", n * n)}; })));
  EXPECT_FALSE(alike(at([](std::int64_t n) { return Trace{step(n == 4 ? "sub" : "add")}; })));
  EXPECT_FALSE(alike({chunked(2, 0), chunked(3, 0)}));
  EXPECT_FALSE(alike({Trace{}, Trace{}, Trace{}}));
}

// A form whose trace is given, and whose numbers nobody reads.
Outcome checked(const std::function<Trace(std::int64_t T)>& trace) {
  Subject subject;
  subject.call_over_field = [&](const FieldCall& call) {
    EXPECT_TRUE(call.traced);
    return FieldAnswer{.trace = trace(call.inputs[0]->shape[1])};
  };
  Case c{.kernel = "linear_attention", .property = "identity", .variant = "induction", .dtype = DType::float64};
  c.dims = {{"G", 1}, {"T", 8}, {"D", 2}};
  c.fill = "feature";
  c.cotangents = {"y", "S", "z"};
  Expectation expectation(*find_driver("linear_attention"), c, 1);
  return identity_property().check(expectation, subject);
}

// Protects: the claim names the remainders whose traces are alike and no others, and is made by the property's case.
TEST(Induction, TheClaimNamesItsRemainders) {
  const Outcome all = checked([](std::int64_t T) { return chunked(T / 4, T % 4); });
  EXPECT_NE(all.claim.find("for every T = n*4 + r, n at least 1, r in {0, 1, 3}"), std::string::npos) << all.claim;
  EXPECT_NE(all.claim.find("at 2, 3 and 4 blocks"), std::string::npos) << all.claim;
  const Outcome some =
      checked([](std::int64_t T) { return T % 4 == 1 ? Trace{step("odd", T * T)} : chunked(T / 4, T % 4); });
  EXPECT_NE(some.claim.find("r in {0, 3}"), std::string::npos) << some.claim;
  const Outcome none = checked([](std::int64_t T) { return Trace{step("odd", T * T)}; });
  EXPECT_EQ(none.claim, "");
  EXPECT_NE(none.note.find("no claim beyond these lengths"), std::string::npos);
}

// Protects: a loop whose last step equals the first of the next block, of which two blocks show no period yet.
TEST(Induction, LooksAtFiveBlocksWhereTwoDoNotTell) {
  const Outcome outcome = checked([](std::int64_t T) {
    Trace trace;
    for (std::int64_t b = 0; b < T / 4; ++b)
      for (const char* operation : {"add", "bmm", "mul", "add"}) trace.push_back(step(operation));
    return trace;
  });
  EXPECT_NE(outcome.claim.find("at 3, 4 and 5 blocks"), std::string::npos) << outcome.claim << outcome.note;
}

}  // namespace
}  // namespace fractus
