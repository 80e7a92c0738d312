// Boost's rationals and 50-digit floats as number systems: exact small cases, and the oracle that judges Companion.
#pragma once

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <boost/multiprecision/cpp_int.hpp>

#include "oracle/number.h"

namespace fractus::oracle {

using Rational = boost::multiprecision::cpp_rational;
// Expression templates off: a definition's `auto` would otherwise hold references to temporaries.
using Float50 =
    boost::multiprecision::number<boost::multiprecision::cpp_bin_float_50::backend_type, boost::multiprecision::et_off>;

template <>
struct PowerOfTen<Rational> {
  static Rational of(int exponent) {
    using boost::multiprecision::cpp_int;
    const cpp_int magnitude = boost::multiprecision::pow(cpp_int(10), static_cast<unsigned>(std::abs(exponent)));
    return exponent < 0 ? Rational(1, magnitude) : Rational(magnitude);
  }
};

template <>
struct PowerOfTen<Float50> {
  static Float50 of(int exponent) { return boost::multiprecision::pow(Float50(10), exponent); }
};

}  // namespace fractus::oracle
