// A machine that is described by a file.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gate/machine_class.h"
#include "tests/gate/example.h"

namespace fractus::gate {
namespace {

TEST(MachineFile, IsAnObjectOfTextsOrHoldsOne) {
  const Folder folder;
  const Facts facts{{"cpu_features", "avx2 fma"}, {"torch", "2.11.0"}};
  EXPECT_EQ(machine_from(folder.put("a.json", R"({"torch": "2.11.0", "cpu_features": "avx2 fma"})")), facts);
  EXPECT_EQ(machine_from(
                folder.put("b.json", R"({"x": 1, "machine": {"torch": "2.11.0", "cpu_features": ["avx2", "fma"]}})")),
            facts);
}

// Protects: what cannot be read is an error, not a machine of which nothing is known.
TEST(MachineFile, OfAnotherFormIsAnError) {
  const Folder folder;
  for (const char* text :
       {"", "[]", "7", "{", R"({"torch": 2.11})", R"({"cpu_features": ["avx2", 1]})", R"({"torch": null})",
        R"({"machine": "this"})", R"({"torch": "2", "torch": "3"})", R"({"torch": {"a": "b"}})"})
    EXPECT_THROW(machine_from(folder.put("m.json", text)), std::runtime_error) << text;
  EXPECT_THROW(machine_from(folder.path / "none.json"), std::runtime_error);
  EXPECT_THROW(machine_from(folder.path), std::runtime_error);
}

}  // namespace
}  // namespace fractus::gate
