#include "reports/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace fractus {
namespace {

struct Character {
  std::size_t bytes = 0;  // 0: no character begins here
  std::uint32_t code = 0;
};

// The character that the text begins with, by the rules of UTF-8: shortest form, no surrogate, none above U+10FFFF.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0x7F >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[bytes] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {};
  return {bytes, code};
}

// Moves the cursor, breaks the line, turns the direction of reading, or is no character (XML has no way to write it).
bool is_control(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x200B && code <= 0x200F) ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF ||
         (code & 0xFFFE) == 0xFFFE;
}

std::string visible(std::string_view text, bool keep_lines) {
  std::string words;
  words.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    const std::size_t bytes = std::max<std::size_t>(character.bytes, 1);
    const auto code = character.code;
    if (character.bytes == 0)
      words += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    else if (!is_control(code) || (keep_lines && (code == '\n' || code == '\t')))
      words += text.substr(0, bytes);
    else if (code == '\n' || code == '\t' || code == '\r')
      words += code == '\n' ? "\\n" : code == '\t' ? "\\t" : "\\r";
    else
      words += code < 0x80 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
    text.remove_prefix(bytes);
  }
  return words;
}

std::string with_entities(const std::string& text) {
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default: safe += c;
    }
  return safe;
}

std::string with_unit(double amount, const char* unit) {
  return amount < 99.95 ? fmt::format("{:.3g} {}", amount, unit) : fmt::format("{:.0f} {}", amount, unit);
}

}  // namespace

std::string visible(std::string_view text) { return visible(text, false); }
std::string visible_lines(std::string_view text) { return visible(text, true); }

std::string escaped(std::string_view text) { return with_entities(visible(text)); }
std::string escaped_lines(std::string_view text) { return with_entities(visible_lines(text)); }

std::string_view tail_of(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  text.remove_prefix(text.size() - most);
  while (!text.empty() && (static_cast<unsigned char>(text[0]) & 0xC0) == 0x80) text.remove_prefix(1);
  return text;
}

std::string time_text(double seconds) {
  if (seconds == 0) return "0 s";
  if (seconds < 1) return with_unit(seconds * 1e3, "ms");
  if (seconds < 300) return with_unit(seconds, "s");
  if (seconds < 3 * 3600) return with_unit(seconds / 60, "min");
  return with_unit(seconds / 3600, "h");
}

}  // namespace fractus
