// The audit of a form: what it did that its algebra does not hold, over a choice of the plan's calls.
#pragma once

#include <vector>

#include "harness/attached.h"
#include "harness/plan.h"

namespace fractus {

// Runs calls of the plan once more, spread over its shapes, forward and backward, in both dtypes where the plan has
// them. A call that fails adds nothing: other properties judge it. Remarks of one place stand once, with their count.
std::vector<Remark> audited(const Driver& driver, const Plan& plan, Attached& form);

}  // namespace fractus
