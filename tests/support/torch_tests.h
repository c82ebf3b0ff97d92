#pragma once

// What most tests of rooms with LibTorch include, precompiled once for all of them: three quarters
// of such a file's compile time. Third-party headers only, for compiled tests are cached by its
// list.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>
