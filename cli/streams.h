// The standard streams and the signals: what of them is closed, full, gone or pressed, and what that may cost.
#pragma once

#include <stdexcept>
#include <string>

namespace fractus::cli {

// Standard output was closed by its reader, as `head` does.
struct ClosedPipe : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// For the first line of main: standard streams that are closed are /dev/null from here on, since any other file would
// get their numbers and what is printed; a reader that goes away is an error of the write, not the end of the process;
// an interrupt leaves no temporary file; an exception that nobody catches is a failure of our own.
void prepare_process();

// To standard error, at once. Whether anybody can read it decides nothing.
void say(const std::string& text);

// To standard output, at once. Throws ClosedPipe, or std::runtime_error where it does not take it for another reason.
void print_whole(const std::string& text);

// The conventional end of a command whose only product was the output that nobody reads.
[[noreturn]] void end_by_closed_pipe();

bool is_terminal(int descriptor);

}  // namespace fractus::cli
