#include "properties/driver.h"

#include <utility>

namespace fractus {

namespace block_attention {
const Driver& driver();
}
namespace block_core {
const Driver& driver();
}
namespace cross_entropy {
const Driver& driver();
}
namespace experts {
const Driver& driver();
}
namespace kuramoto {
const Driver& driver();
}
namespace linear_attention {
const Driver& driver();
}
namespace matmul {
const Driver& driver();
}
namespace moe {
const Driver& driver();
}
namespace moe_gate {
const Driver& driver();
}
namespace sample_tokens {
const Driver& driver();
}

std::function<Problem(Problem, std::uint64_t)> spoiled_scalar(std::string name,
                                                              std::function<double(const Problem&)> value) {
  return [name = std::move(name), value = std::move(value)](Problem problem, std::uint64_t) {
    problem.scalars[name] = value(problem);
    return problem;
  };
}

const std::vector<const Driver*>& drivers() {
  static const std::vector<const Driver*> all{
      &linear_attention::driver(), &cross_entropy::driver(), &sample_tokens::driver(), &moe_gate::driver(),
      &kuramoto::driver(),         &moe::driver(),           &block_core::driver()};
  return all;
}

const std::vector<const Driver*>& identity_drivers() {
  static const std::vector<const Driver*> all{&matmul::driver(), &experts::driver(), &block_attention::driver()};
  return all;
}

const Driver* find_driver(std::string_view kernel) {
  for (const auto* list : {&drivers(), &identity_drivers()})
    for (const Driver* driver : *list)
      if (driver->contract->kernel == kernel) return driver;
  return nullptr;
}

}  // namespace fractus
