#include "gate/curve_log.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string_view>

#include "gate/archive.h"

namespace fractus::gate {
namespace {

constexpr std::size_t most_line_bytes = 64 << 10, most_samples = 5'000'000;
constexpr std::uintmax_t most_bytes = std::uintmax_t{4} << 30;

bool of_a_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

struct Line {
  std::string_view text;
  const std::string& name;
  std::size_t number;

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(fmt::format("{}, line {}: {}", name, number, what));
  }

  // What stands behind KEY=, where KEY is a whole name: tf= is not found in ema_tf=.
  std::optional<std::string_view> value(std::string_view key) const {
    std::optional<std::string_view> found;
    for (std::size_t at = 0; (at = text.find(key, at)) != text.npos; at += key.size()) {
      if ((at > 0 && of_a_name(text[at - 1])) || at + key.size() >= text.size() || text[at + key.size()] != '=')
        continue;
      if (found) fail(fmt::format("{}= stands there twice", key));
      found = text.substr(at + key.size() + 1);
    }
    return found;
  }

  std::string_view wanted(std::string_view key) const {
    const auto found = value(key);
    if (!found) fail(fmt::format("it has ema_tf= and no {}=", key));
    return *found;
  }

  // The number at the start of a text, which ends where a name or a number cannot go on; and what a 1 in its last
  // printed digit is worth.
  double number_at(std::string_view key, std::string_view rest, double* unit = nullptr) const {
    double result = 0;
    const char *begin = rest.data(), *end = begin + rest.size();
    const auto [stop, error] = std::from_chars(begin, end, result);
    const bool ends = stop == end || (!of_a_name(*stop) && *stop != '.' && *stop != '+' && *stop != '-');
    if (error != std::errc() || !ends)
      fail(fmt::format("{}= is followed by {}, wanted a number", key, in_quotes(rest.substr(0, 40))));
    if (unit != nullptr) *unit = unit_of({begin, static_cast<std::size_t>(stop - begin)});
    return result;
  }

  static double unit_of(std::string_view number) {
    const std::size_t power = number.find_first_of("eE"), point = number.find('.');
    const std::string_view digits = number.substr(0, power);
    int exponent = point == number.npos ? 0 : -static_cast<int>(digits.size() - point - 1);
    if (power != number.npos) {
      std::string_view text_of_power = number.substr(power + 1);
      if (text_of_power.starts_with('+')) text_of_power.remove_prefix(1);
      int shift = 0;
      std::from_chars(text_of_power.data(), text_of_power.data() + text_of_power.size(), shift);
      exponent += shift;
    }
    return std::pow(10.0, exponent);
  }
};

std::optional<Sample> sample_in(const Line& line) {
  const auto ema = line.value("ema_tf");
  if (!ema) return std::nullopt;
  Sample sample{.line = line.number};
  sample.ema_tf = line.number_at("ema_tf", *ema, &sample.ema_unit);
  sample.tf = line.number_at("tf", line.wanted("tf"), &sample.tf_unit);
  sample.lb = line.number_at("lb", line.wanted("lb"));
  if (const auto step = line.value("step")) {
    const double number = line.number_at("step", *step);
    if (!(number >= 0 && number <= 0x1p53) || std::trunc(number) != number) line.fail("step= is no count");
    sample.step = static_cast<std::int64_t>(number);
  }
  return sample;
}

}  // namespace

std::vector<Sample> samples_from(std::istream& text, const std::string& name) {
  std::vector<Sample> samples;
  std::string line;
  std::vector<char> buffer(most_line_bytes);
  for (std::size_t number = 1;; ++number) {
    text.getline(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    if (text.bad()) throw std::runtime_error(fmt::format("{}: it cannot be read", name));
    if (text.eof()) break;  // nothing, or a line without its end
    if (text.fail())
      throw std::runtime_error(fmt::format("{}, line {}: longer than {} bytes", name, number, most_line_bytes));
    const std::string_view whole(buffer.data(), static_cast<std::size_t>(text.gcount()) - 1);
    if (auto sample = sample_in({whole, name, number})) {
      if (!samples.empty() && samples.back().step.has_value() != sample->step.has_value())
        throw std::runtime_error(
            fmt::format("{}, line {}: step= stands in some lines and not in others", name, number));
      samples.push_back(*sample);
    }
    if (samples.size() > most_samples)
      throw std::runtime_error(
          fmt::format("{}: more than {} lines of the trainer's; give its last part", name, most_samples));
  }
  return samples;
}

std::vector<Sample> samples_of(const std::filesystem::path& file) {
  const std::string name = in_quotes(file.string());
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) throw std::runtime_error(name + ": there is no such file");
  const std::uintmax_t bytes = std::filesystem::file_size(file, error);
  if (error || bytes > most_bytes)
    throw std::runtime_error(fmt::format("{}: larger than {} bytes; give its last part", name, most_bytes));
  std::ifstream text(file, std::ios::binary);
  if (!text) throw std::runtime_error(name + ": it cannot be opened");
  return samples_from(text, name);
}

}  // namespace fractus::gate
