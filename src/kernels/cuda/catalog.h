// The choice of kernels is part of the folder's face: kernels/gpu_catalog.h.
#pragma once

#include "kernels/gpu_catalog.h"
