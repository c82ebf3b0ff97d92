#pragma once

// What the rooms of AUTOMODEL_PRECOMPILED_ROOMS include of LibTorch, precompiled once for all of them.
// Third-party headers only, for compiled files are cached by its list.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>
