// The properties, one file each.
#pragma once

#include "properties/property.h"

namespace fractus {

Property contract_property();
Property domain_property();
Property exact_property();
Property rounding_property();
Property gradients_property();
Property carry_property();
Property choices_property();
Property repeat_property();
Property recompute_property();
Property memory_property();
Property law_property();
Property identity_property();

}  // namespace fractus
