// What a form's call did that its algebra does not hold, as torch's dispatcher sees it: operations by name, with their
// place in the source where the form's language knows one.
#pragma once

#include <ATen/record_function.h>

#include <vector>

#include "contracts/field_call.h"

namespace fractus::worker {

// Listens to the operations of this thread while it lives: forward, and a backward on the CPU, which autograd runs in
// the thread that asks for it. What a form does beside the dispatcher (its own loops over memory, generated code) is
// not seen.
class Audit {
 public:
  Audit();
  ~Audit();
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;

  std::vector<Remark> take();  // those of one place once, with their count

 private:
  at::CallbackHandle handle_;
};

}  // namespace fractus::worker
