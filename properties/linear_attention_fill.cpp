#include "properties/linear_attention_fill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "contracts/linear_attention.h"
#include "properties/random.h"

namespace fractus::linear_attention {
namespace {

// A problem under construction: every tensor present, absent ones are dropped at the end.
struct Draft {
  std::int64_t G, T, D;
  DType dtype;
  Array q, k, v, S0, z0, gy, gS, gz;

  double& at(Array& tokens, std::int64_t g, std::int64_t t, std::int64_t i) {
    return tokens.values[static_cast<std::size_t>((g * T + t) * D + i)];
  }
  double& state(Array& S, std::int64_t g, std::int64_t p, std::int64_t c) {
    return S.values[static_cast<std::size_t>((g * D + p) * D + c)];
  }
  double& norm(Array& z, std::int64_t g, std::int64_t p) { return z.values[static_cast<std::size_t>(g * D + p)]; }
  std::vector<Array*> all() { return {&q, &k, &v, &S0, &z0, &gy, &gS, &gz}; }
};

using Draw = std::function<double()>;

void draw(Array& array, const Draw& next) {
  for (double& x : array.values) x = next();
}

double feature(double x) { return x > 0 ? x + 1 : std::exp(x); }  // elu(x) + 1, as the block feeds the kernel

void ordinary(Draft& d, Random& random, bool positive) {
  const Draw normal = [&] { return random.normal(); };
  const Draw mapped = [&] { return positive ? feature(random.normal()) : random.normal(); };
  for (Array* array : {&d.q, &d.k, &d.z0}) draw(*array, mapped);
  for (Array* array : {&d.v, &d.S0, &d.gy, &d.gS, &d.gz}) draw(*array, normal);
}

void zero_rows(Draft& d, Random& random) {
  ordinary(d, random, true);
  // Group 0 has z0 = 0 and, at first, k = 0: den is exactly 0 while S0 makes the numerator anything but.
  for (std::int64_t g = 0; g < d.G; ++g) {
    if (g % 2 == 0)
      for (std::int64_t p = 0; p < d.D; ++p) d.norm(d.z0, g, p) = 0;
    const std::int64_t silent = g % 2 == 0 ? random.integer(1, d.T) : 0;
    for (std::int64_t t = 0; t < d.T; ++t)
      for (Array* array : {&d.q, &d.k, &d.v})
        if (random.chance(0.2) || (array == &d.k && t < silent))
          for (std::int64_t i = 0; i < d.D; ++i) d.at(*array, g, t, i) = random.chance(0.5) ? 0.0 : -0.0;
  }
}

void sparse(Draft& d, Random& random) {
  ordinary(d, random, random.chance(0.5));
  for (Array* array : {&d.q, &d.k, &d.v, &d.S0, &d.z0, &d.gy, &d.gS, &d.gz})
    for (double& x : array->values)
      if (random.chance(0.8)) x = random.chance(0.5) ? 0.0 : -0.0;
}

void one_hot(Draft& d, Random& random) {
  ordinary(d, random, true);
  for (Array* array : {&d.q, &d.k})
    for (std::int64_t g = 0; g < d.G; ++g)
      for (std::int64_t t = 0; t < d.T; ++t) {
        const std::int64_t hot = random.integer(0, d.D - 1);
        for (std::int64_t i = 0; i < d.D; ++i) d.at(*array, g, t, i) = i == hot ? feature(random.normal()) : 0;
      }
}

void constant(Draft& d, Random& random) {
  for (Array* array : d.all()) {
    const double x = array == &d.q || array == &d.k || array == &d.z0 ? feature(random.normal()) : random.normal();
    draw(*array, [x] { return x; });
  }
}

// Some tensors are 0 throughout: the state that a run starts with, a cotangent that is not used.
void zero_tensors(Draft& d, Random& random) {
  ordinary(d, random, true);
  for (Array* array : {&d.v, &d.S0, &d.z0, &d.gy, &d.gS, &d.gz})
    if (random.chance(array == &d.S0 || array == &d.z0 ? 0.6 : 0.2)) draw(*array, [] { return 0.0; });
}

// Each tensor keeps to a few binades of its own somewhere in the domain; q, k and z0 are positive, so that den is no
// smaller than its terms and every quantity stays finite.
void magnitudes(Draft& d, Random& random) {
  // In half of the draws den is as large as the domain lets it be, where its square overflows in float32.
  const bool largest = random.chance(0.5);
  for (Array* array : d.all()) {
    const bool positive = array == &d.q || array == &d.k || array == &d.z0;
    // Every other tensor lies at an end of the domain, half of its entries at the very last number.
    const double end = largest && positive ? domain_exponent : domain_exponent * random.sign();
    const double centre = (largest && positive) || random.chance(0.5) ? end : random.uniform(-28, 28);
    const double spread = random.uniform(0, 2);
    draw(*array, [&] {
      return (positive ? 1 : random.sign()) *
             std::exp2(std::clamp(centre + random.uniform(-spread, spread), -30.0, 30.0));
    });
  }
  // The carry continues sums of k v and k: near them in magnitude it matters without drowning them.
  const double key = std::fabs(d.k.values.empty() ? 1 : d.k.values[0]),
               value = std::fabs(d.v.values.empty() ? 1 : d.v.values[0]);
  if (random.chance(0.7)) {
    const auto beside = [&](double scale) {
      return std::clamp(scale * std::exp2(random.uniform(-3, 5)), 0x1p-30, 0x1p30);
    };
    draw(d.S0, [&] { return random.sign() * beside(key * value); });
    draw(d.z0, [&] { return beside(key); });
  }
}

// Every entry anywhere within `range` binades of 1, so that each sum is ruled by a few of its terms.
void wild(Draft& d, Random& random) {
  // Quotients of six factors stay below 2^100 with this range.
  constexpr double range = 12;
  for (Array* array : d.all()) {
    const bool positive = array == &d.q || array == &d.k || array == &d.z0;
    draw(*array, [&] { return (positive ? 1 : random.sign()) * std::exp2(random.uniform(-range, range)); });
  }
}

// Denominators from 1 down to 1e-9, where an epsilon that is not the contract's shows.
void small_denominators(Draft& d, Random& random) {
  ordinary(d, random, true);
  const double q_scale = std::exp2(random.uniform(-14, 0)), k_scale = std::exp2(random.uniform(-14, 0));
  for (double& x : d.q.values) x *= q_scale;
  for (Array* array : {&d.k, &d.z0})
    for (double& x : array->values) x *= k_scale;
}

// den = q_t . z_t, by the values that the dtype holds, as the token t sees it.
struct Normaliser {
  std::vector<double> z;
  Normaliser(Draft& d, std::int64_t g) {
    for (std::int64_t p = 0; p < d.D; ++p) z.push_back(d.norm(d.z0, g, p));
  }
  void see(Draft& d, std::int64_t g, std::int64_t t) {
    for (std::int64_t p = 0; p < d.D; ++p) z[static_cast<std::size_t>(p)] += d.at(d.k, g, t, p);
  }
};

// Signed features whose den cancels: its terms are of order 1, its sum is 1e-1 to 1e-6 of them, of either sign.
void cancelling(Draft& d, Random& random) {
  ordinary(d, random, false);
  for (std::int64_t g = 0; g < d.G; ++g) {
    Normaliser n(d, g);
    for (std::int64_t t = 0; t < d.T; ++t) {
      n.see(d, g, t);
      const auto largest =
          std::max_element(n.z.begin(), n.z.end(), [](double a, double b) { return std::fabs(a) < std::fabs(b); }) -
          n.z.begin();
      if (n.z[static_cast<std::size_t>(largest)] == 0) continue;
      double rest = 0;
      for (std::int64_t p = 0; p < d.D; ++p)
        if (p != largest) rest += d.at(d.q, g, t, p) * n.z[static_cast<std::size_t>(p)];
      const double target = random.sign() * std::pow(10.0, random.uniform(-6, -1)) * (std::fabs(rest) + 0.1);
      d.at(d.q, g, t, largest) = rounded((target - rest) / n.z[static_cast<std::size_t>(largest)], d.dtype);
    }
  }
}

// |den| on either side of the cut, exactly at it, and one and two units in the last place to either side, of both
// signs.
void near_cut(Draft& d, Random& random) {
  const auto small = [&](double low, double high) { return random.sign() * std::exp2(random.uniform(low, high)); };
  draw(d.v, [&] { return random.normal(); });
  draw(d.k, [&] { return small(-14, -12); });
  draw(d.z0, [&] { return small(-8, -6); });
  draw(d.S0, [&] { return random.normal(); });
  for (Array* array : {&d.gy, &d.gS, &d.gz}) draw(*array, [&] { return random.normal(); });
  draw(d.q, [] { return 0.0; });
  const double ulp = 2 * unit_roundoff(d.dtype);
  const std::vector<double> offsets{0, ulp, -ulp, 2 * ulp, -2 * ulp, 1, -0.5, 4, 9};
  // Half of the rows at any distance from a unit in the last place up: a cut in the wrong place is off by some power of
  // ten, one compared with den + 1e-20 by 1e-10 of itself.
  const auto any_distance = [&] { return random.sign() * std::exp2(random.uniform(std::log2(ulp), -1)); };
  for (std::int64_t g = 0; g < d.G; ++g) {
    Normaliser n(d, g);
    for (std::int64_t t = 0; t < d.T; ++t) {
      n.see(d, g, t);
      const double offset =
          random.chance(0.5)
              ? any_distance()
              : offsets[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(offsets.size()) - 1))];
      double target = random.sign() * cut * (1 + offset);
      const std::int64_t p = random.integer(0, d.D - 1), other = random.integer(0, d.D - 1);
      if (other != p && random.chance(0.2)) {  // two terms that nearly cancel: the interval is wide and holds the cut
        d.at(d.q, g, t, other) = rounded(std::exp2(-20), d.dtype);
        target -= d.at(d.q, g, t, other) * n.z[static_cast<std::size_t>(other)];
      }
      const double aimed = std::fabs(target / n.z[static_cast<std::size_t>(p)]);
      if (aimed >= 0x1p-30 && aimed <= 0x1p30)
        d.at(d.q, g, t, p) = rounded(target / n.z[static_cast<std::size_t>(p)], d.dtype);
    }
  }
}

// k's last coordinate brings den to a power of two, so that the division, and with it the whole adjoint, is exact too.
void balance(Draft& d, Random& random, std::int64_t g) {
  Normaliser n(d, g);
  for (std::int64_t t = 0; t < d.T; ++t) {
    d.at(d.q, g, t, d.D - 1) = 1;
    double rest = 0;
    for (std::int64_t p = 0; p + 1 < d.D; ++p)
      rest += d.at(d.q, g, t, p) * (n.z[static_cast<std::size_t>(p)] + d.at(d.k, g, t, p));
    const double target = random.sign() * std::exp2(static_cast<double>(random.integer(0, 3)));
    d.at(d.k, g, t, d.D - 1) = target - rest - n.z[static_cast<std::size_t>(d.D - 1)];
    n.see(d, g, t);
  }
}

Problem finished(Draft& d, const Case& c) {
  for (Array* array : d.all())
    for (double& x : array->values) x = rounded(x, d.dtype);

  Problem problem;
  for (Array* array : {&d.q, &d.k, &d.v, &d.S0, &d.z0})
    problem.inputs.push_back(contains(c.absent, array->name) ? std::nullopt : std::optional<Array>(*array));
  for (Array* array : {&d.gy, &d.gS, &d.gz})
    problem.cotangents.push_back(contains(c.cotangents, array->name) ? std::optional<Array>(*array) : std::nullopt);
  return problem;
}

Draft blank(const Case& c) {
  for (const std::string& symbol : contract().dim_symbols)
    if (!c.dims.contains(symbol) || c.dims.at(symbol) < 0)
      throw std::invalid_argument(fmt::format("dims: wanted an extent of 0 or more for {}, got {}", symbol,
                                              c.dims.contains(symbol) ? fmt::to_string(c.dims.at(symbol)) : "nothing"));
  const std::int64_t G = c.dims.at("G"), T = c.dims.at("T"), D = c.dims.at("D");
  if (D == 0) throw std::invalid_argument("dims: wanted D of 1 or more, got 0");
  const auto tokens = [&](const char* name) { return zeros(name, c.dtype, {G, T, D}); };
  return {G,
          T,
          D,
          c.dtype,
          tokens("q"),
          tokens("k"),
          tokens("v"),
          zeros("S0", c.dtype, {G, D, D}),
          zeros("z0", c.dtype, {G, D}),
          tokens("y"),
          zeros("S", c.dtype, {G, D, D}),
          zeros("z", c.dtype, {G, D})};
}

// Powers of two of each tensor's own change no bit of any significand, and the harness's integers look like any other
// input. den scales as q k; S0 joins sums of k v, gS those of g q / den, gz those of g v / den.
Problem disguised(Draft& d, const Case& c, int q, int k, int v, int g) {
  for (const auto& [array, power] : std::vector<std::pair<Array*, int>>{
           {&d.q, q}, {&d.k, k}, {&d.v, v}, {&d.S0, k + v}, {&d.z0, k}, {&d.gy, g}, {&d.gS, g - k}, {&d.gz, g + v - k}})
    for (double& x : array->values) x = std::ldexp(x, power);
  return finished(d, c);
}

// Integers times a power of two of each tensor's own, so small that any order of any sum of them is exact.
Problem lattice(Draft& d, Random& random, bool balanced, const Case& c) {
  // Entries in [-r, r]. S_T sums T products k v; with a free lattice they fill the significand to the last two bits.
  // The balanced one leaves room for the longest monomial of the adjoint; the certificate has the last word.
  const int bits = significand_bits(d.dtype);
  const double length = static_cast<double>(std::max<std::int64_t>(d.T, 1));
  const double fill_all = std::floor(std::exp2((bits - 1 - std::log2(length)) / 2));
  const std::int64_t r = balanced ? (d.dtype == DType::float32 ? 1 + random.integer(0, 1) : 6)
                                  : std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(fill_all, 0x1p25)));
  const Draw entry = [&] { return static_cast<double>(random.integer(-r, r)); };
  for (Array* array : d.all()) draw(*array, entry);
  if (!balanced) draw(d.q, [&] { return static_cast<double>(random.integer(-2, 2)); });
  // Absent inputs are zeros to the sums that balance.
  if (contains(c.absent, "z0")) draw(d.z0, [] { return 0.0; });
  if (balanced)
    for (std::int64_t g = 0; g < d.G; ++g) balance(d, random, g);

  const auto exponent = [&](std::int64_t low, std::int64_t high) {
    return static_cast<int>(random.integer(low, high));
  };
  const int room = balanced ? 6
                            : (domain_exponent - 2 - static_cast<int>(std::log2(static_cast<double>(r)))) /
                                  2;  // S0 takes k's and v's
  Problem problem = disguised(d, c, exponent(0, room), exponent(0, room), exponent(-room, room), exponent(-room, room));
  // S - S' of a wrong form is a polynomial of degree 2 in entries of 2r + 1 values each, drawn anew for every group
  // (Schwartz 1980, Zippel 1979). That is for a form that is a polynomial of the contract's degrees.
  if (!balanced && d.G > 0 && d.T > 0)
    problem.escape = std::pow(2.0 / static_cast<double>(2 * r + 1), static_cast<double>(d.G));
  return problem;
}

// One tensor fills the significand to its last bit; the others are 0, or powers of two in so few places that nothing
// rounds all the same. A kernel that keeps that tensor, or what is made of it, a bit short is off by that bit, while
// the rounding bound leaves room for the last two or three.
Problem wide_lattice(Draft& d, Random& random, const std::string& wide, const Case& c) {
  const int bits = significand_bits(d.dtype);
  // Odd and of `width` bits, so that one bit less is one too few.
  const auto odd = [&](int width) {
    const auto half = static_cast<std::int64_t>(std::exp2(width - 2));
    return random.sign() * static_cast<double>(2 * random.integer(half, half + half / 2) + 1);
  };
  const auto unit = [&](double share) { return random.chance(share) ? random.sign() : 0.0; };
  const bool by_q = wide == "wide_q" && d.D >= 2 && d.T >= 3;
  const bool by_gradient = wide == "wide_gy" || wide == "wide_gS" || wide == "wide_gz";
  // Powers of two beside 1 would cost the widest sums their last bits.
  const auto power = [&] { return by_gradient ? 1.0 : std::exp2(static_cast<double>(random.integer(0, 2))); };

  for (Array* array : d.all()) draw(*array, [] { return 0.0; });
  if (wide == "wide_S0" || (wide == "wide_q" && !by_q)) draw(d.S0, [&] { return odd(bits); });
  if (wide == "wide_z0" && !contains(c.absent, "z0")) draw(d.z0, [&] { return odd(bits - 2); });
  if (wide == "wide_gS") draw(d.gS, [&] { return odd(bits - 1); });
  if (wide == "wide_gz") draw(d.gz, [&] { return odd(bits - 1); });
  if (!by_gradient) draw(d.gy, [&] { return unit(0.2); });
  const bool even_columns = wide == "wide_gy" && d.D >= 2;  // those of y; gy has the others
  for (std::int64_t g = 0; g < d.G; ++g) {
    Normaliser n(d, g);
    const std::int64_t chosen = random.integer(0, d.T - 1);
    for (std::int64_t t = 0; t < d.T; ++t) {
      if (by_q && t >= 2) {  // z is 1 at the first two coordinates, and their sum in q a power of two: den
        const double first = odd(bits - 2);
        d.at(d.q, g, t, 0) = first;
        d.at(d.q, g, t, 1) = power() - first;
        continue;
      }
      // q looks at one coordinate, and k brings z to a power of two there, where it is none yet.
      const std::int64_t p = by_q ? t : random.integer(0, d.D - 1);
      const double z = n.z[static_cast<std::size_t>(p)];
      int exponent = 0;
      const bool is_power = std::fabs(std::frexp(z, &exponent)) == 0.5 && std::fabs(z) <= 4;
      d.at(d.q, g, t, p) = random.sign() * power();
      if (!is_power || (wide == "wide_S0" && random.chance(0.3)))
        d.at(d.k, g, t, p) = (by_q ? 1.0 : random.sign() * power()) - z;
      n.see(d, g, t);
      for (std::int64_t i = by_q ? t : 0; i < d.D; i += by_q ? 2 : 1)
        d.at(d.v, g, t, i) = wide == "wide_v" ? odd(bits) : by_q ? random.sign() : 0.0;
      const std::int64_t column = random.integer(0, d.D - 1);
      if (!by_q && wide != "wide_v") d.at(d.v, g, t, even_columns ? column - column % 2 : column) = unit(0.7);
      if (wide == "wide_gy" && t == chosen)
        for (std::int64_t i = even_columns ? 1 : 0; i < d.D; i += even_columns ? 2 : 1) d.at(d.gy, g, t, i) = odd(bits);
    }
  }
  // The widest lie between 2^-30 and 2^30 in float64 too, and den at 1 or above.
  const int least = (bits > domain_exponent ? domain_exponent - bits : 0) - static_cast<int>(random.integer(0, 1));
  const int extra = static_cast<int>(random.integer(0, 1));
  if (by_q) return disguised(d, c, least, extra - least, extra, extra);
  const int k = wide == "wide_z0" ? least : wide == "wide_S0" || wide == "wide_q" ? least / 2 : 0;
  const int v = wide == "wide_v" ? least : wide == "wide_S0" || wide == "wide_q" ? least - k : 0;
  return disguised(d, c, extra - k, k, v, by_gradient ? least : extra);
}

using Filler = void (*)(Draft&, Random&);
const std::vector<std::pair<std::string, Filler>>& fillers() {
  static const std::vector<std::pair<std::string, Filler>> all{
      {"feature", [](Draft& d, Random& r) { ordinary(d, r, true); }},
      {"signed", [](Draft& d, Random& r) { ordinary(d, r, false); }},
      {"small_denominators", small_denominators},
      {"zero_rows", zero_rows},
      {"cancelling", cancelling},
      {"magnitudes", magnitudes},
      {"wild", wild},
      {"sparse", sparse},
      {"one_hot", one_hot},
      {"constant", constant},
      {"zero_tensors", zero_tensors},
      {"near_cut", near_cut},
  };
  return all;
}

}  // namespace

const std::vector<std::string>& wide_fill_names() {
  static const std::vector<std::string> names{"wide_S0", "wide_z0", "wide_v", "wide_q",
                                              "wide_gy", "wide_gS", "wide_gz"};
  return names;
}

const std::vector<std::string>& fill_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, filler] : fillers()) list.push_back(name);
    list.insert(list.end(), {"lattice", "lattice_balanced"});
    list.insert(list.end(), wide_fill_names().begin(), wide_fill_names().end());
    return list;
  }();
  return names;
}

Problem fill(const Case& c) {
  Draft d = blank(c);
  Random random(c.seed);
  if (c.fill == "lattice" || c.fill == "lattice_balanced") return lattice(d, random, c.fill == "lattice_balanced", c);
  if (contains(wide_fill_names(), c.fill) && element_count({d.G, d.T}) > 0) return wide_lattice(d, random, c.fill, c);
  for (const auto& [name, filler] : fillers())
    if (name == c.fill) {
      if (element_count({d.G, d.T}) > 0)
        filler(d, random);
      else
        ordinary(d, random, true);
      return finished(d, c);
    }
  throw std::invalid_argument(
      fmt::format("fill: '{}' is unknown; wanted one of {}", c.fill, fmt::join(fill_names(), ", ")));
}

}  // namespace fractus::linear_attention
