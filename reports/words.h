// Numbers and foreign text as words for a person.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fractus {

// Text that is not ours, such as that of a candidate's exception, in one line that is harmless wherever it is printed:
// valid UTF-8, and control characters (an escape sequence would move the cursor or recolour the terminal), marks that
// reorder what is read and bytes that are no UTF-8 stand there as \n, \x1b or \u202e.
std::string visible(std::string_view text);

// The same where lines and tabulators stay what they are.
std::string visible_lines(std::string_view text);

// Visible text where HTML and XML take it: in an element or in a quoted attribute it stays text.
std::string escaped(std::string_view text);
std::string escaped_lines(std::string_view text);  // ... with its lines and tabulators

// At most `most` bytes from the end, cut where a character begins.
std::string_view tail_of(std::string_view text, std::size_t most);

// "1 ms", "12.3 s", "10 min", "2.5 h".
std::string time_text(double seconds);

}  // namespace fractus
