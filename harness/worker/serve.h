// What a child of the fork server does.
#pragma once

#include "harness/protocol.h"

namespace fractus::worker {

// Answers requests on the socket until the other side closes it, then ends the process.
[[noreturn]] void serve(int socket);

// The text of the exception that is being handled, without torch's backtrace.
std::string exception_text();

// Adds to an answer which files have been read as code since the last answer; where there are none, nothing.
void add_loaded(protocol::Json& answer);

// What a form declares of its memory for the extents and settings of the request.
protocol::Json extra_elements(const protocol::Json& request);

// The tensors of a .pt file. The message carries the shared memory that holds them.
protocol::Message read_archive(const protocol::Descriptor& file);

}  // namespace fractus::worker
