// Precompiled for the room's files: ATen, and what registers operations.
#pragma once
#include <ATen/ATen.h>
#include <torch/library.h>
