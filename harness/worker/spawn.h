// Processes that this one starts: a child that runs calls, or one that becomes a server of the same kind because it is
// to load a candidate from outside and to be forked for each of that candidate's processes.
#pragma once

#include <cstddef>

namespace fractus::worker {

inline constexpr int socket_fd = 3;  // where the parent is

// Of this process. Threads do not survive a fork, and locks that they hold do.
std::size_t thread_count();

// Answers on descriptor 3 until the other side closes it, then ends all that was started. `for_candidate`: this process
// is a candidate's own, and may load it.
void run_server(bool for_candidate);

}  // namespace fractus::worker
