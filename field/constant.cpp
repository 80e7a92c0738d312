// Constants as rationals.
#include "field/constant.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "field/prime.h"

namespace fractus::field {
namespace {

// The fraction that rounds to x > 0. A fraction h/k within half a unit of x, so within x 2^-53, is a convergent of x's
// continued fraction where h k < 2^52, since then it is nearer than 1/(2 k^2) (Legendre; Hardy and Wright, theorem
// 184); for a float the same with 24 bits.
template <class T>
std::optional<Rational> fraction(T x) {
  constexpr std::int64_t most = 1 << 20, most_product = std::is_same_v<T, float> ? 1 << 16 : most * most;
  if (!(x >= T(1) / most && x <= T(most))) return std::nullopt;
  int exponent = 0;
  const double mantissa = std::frexp(static_cast<double>(x), &exponent);
  // x = a/b exactly: a has 53 bits, and b at most 2^(53+20).
  auto a = static_cast<Wide>(std::ldexp(mantissa, 53));
  auto b = static_cast<Wide>(1);
  (exponent >= 53 ? a : b) <<= std::abs(53 - exponent);
  std::int64_t h = 1, k = 0, h_before = 0, k_before = 1;
  while (b != 0) {
    const Wide quotient = a / b;
    if (quotient > most) return std::nullopt;
    const auto q = static_cast<std::int64_t>(quotient);
    const std::int64_t h_next = q * h + h_before, k_next = q * k + k_before;
    h_before = h, k_before = k, h = h_next, k = k_next;
    if (h > most || k > most || h * k > most_product) return std::nullopt;
    // Both are exact in T, so the quotient is the fraction rounded to it.
    if (h != 0 && static_cast<T>(h) / static_cast<T>(k) == x) return Rational{h, k};
    const Wide rest = a % b;
    a = b, b = rest;
  }
  return std::nullopt;
}

template <class T>
Rational shortest_decimal(T x) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof text, x, std::chars_format::scientific);
  if (error != std::errc()) throw std::logic_error("a number has no decimal notation of 64 characters");
  Rational result;
  int digits_behind_point = 0;
  bool behind_point = false;
  const char* at = text;
  for (; at != end && *at != 'e'; ++at) {
    if (*at == '.') {
      behind_point = true;
    } else {
      result.numerator = result.numerator * 10 + (*at - '0');  // at most 17 digits
      digits_behind_point += behind_point;
    }
  }
  result.decimal = std::atoi(std::string(at + 1, static_cast<const char*>(end)).c_str()) - digits_behind_point;
  return result;
}

template <class T>
Rational read_positive(T x) {
  constexpr auto last_whole = static_cast<T>(std::int64_t{1} << std::numeric_limits<T>::digits);
  if (x <= last_whole && x == std::trunc(x)) return {static_cast<std::int64_t>(x)};
  if constexpr (std::is_same_v<T, double>) {
    const bool may_be_float = x <= std::numeric_limits<float>::max();
    if (may_be_float && static_cast<double>(static_cast<float>(x)) == x) return read_positive(static_cast<float>(x));
  }
  constexpr int few = std::is_same_v<T, float> ? 10 : 20;
  int exponent = 0;
  double mantissa = std::ldexp(std::frexp(static_cast<double>(x), &exponent), few);
  if (mantissa == std::trunc(mantissa)) {
    exponent -= few;
    for (; std::fmod(mantissa, 2) == 0; mantissa /= 2) ++exponent;
    return {static_cast<std::int64_t>(mantissa), 1, exponent};
  }
  if (const auto found = fraction(x)) return *found;
  return shortest_decimal(x);
}

template <class T>
Rational read_any(T x) {
  if (!std::isfinite(x)) throw std::domain_error("a constant that is no finite number");
  Rational result = x == T(0) ? Rational{} : read_positive(std::abs(x));
  if (x < T(0)) result.numerator = -result.numerator;
  return result;
}

template <int bits>
std::uint64_t residue_in(const Rational& x) {
  using F = Prime<bits>;
  const auto power = [](std::uint64_t base, int exponent) {
    const std::uint64_t magnitude = F::power(base, static_cast<std::uint64_t>(std::abs(exponent)));
    return exponent < 0 ? F::inverse(magnitude) : magnitude;  // 2 and 10 have inverses
  };
  const std::uint64_t denominator = F::of(x.denominator);
  if (denominator == 0) throw std::domain_error("a constant whose denominator is 0 in the field");
  const std::uint64_t quotient = F::multiply(F::of(x.numerator), F::inverse(denominator));
  return F::multiply(quotient, F::multiply(power(2, x.binary), power(10, x.decimal)));
}

}  // namespace

Rational read(double x) { return read_any(x); }
Rational read(float x) { return read_any(x); }

std::uint64_t residue(const Rational& x, int bits) { return bits == 31 ? residue_in<31>(x) : residue_in<61>(x); }

}  // namespace fractus::field
