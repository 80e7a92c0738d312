// Precompiled for the few translation units that see torch: ATen alone, 18 s a file instead of 37 s for torch/torch.h.
#pragma once
#include <ATen/ATen.h>
