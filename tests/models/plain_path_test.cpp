// Every family by the kernels' plain path, which is what a device runs, in float32, float64 and
// bfloat16, and with the kernels that a device has of our own, which take their turns on the host,
// and with what stands for its FlashAttention; and on a device itself where AUTOMODEL_TEST_DEVICE
// is cuda (scripts/gpu/prove.sh).
// The truth is our own float64 run, held to the reference of transformers.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/fused.h"
#include "kernels/device/device_kernels.h"
#include "kernels/host_flash.h"
#include "models/golden_families.h"
#include "models/golden_model.h"
#include "models/parity.h"
#include "tensor/cuda_runtime.h"

namespace automodel {
namespace {

/// In float64, of one pass over a reference's batch.
struct Pass {
  at::Tensor logits;  ///< [rows, V]
  at::Tensor token_losses;
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;
};

at::Tensor flat_rows(const at::Tensor& logits) {
  return logits.detach().cpu().to(at::kDouble).reshape({-1, logits.size(-1)});
}

at::Tensor losses_of(const at::Tensor& rows, const at::Tensor& labels) {
  const at::Tensor places = labels.ne(models::kParityIgnoreIndex).nonzero().squeeze(1);
  const at::Tensor targets = labels.index_select(0, places).unsqueeze(1);
  return rows.index_select(0, places).log_softmax(-1).gather(1, targets).squeeze(1).neg();
}

enum class Path {
  kPlain,
  kDeviceKernels,  ///< on the host
  kDevice
};

/// Moves what was loaded to the device.
void move_to_device(models::CausalLM& model) {
  for (const auto& item : model.named_parameters()) {
    at::Tensor parameter = item.value();
    parameter.set_data(parameter.detach().to(at::kCUDA));
  }
}

Pass run(models::CausalLM& model, const tensor::NamedTensors& reference, Path path) {
  const kernels::PlainPathScope plain(path == Path::kPlain);
  std::optional<kernels::device::HostFlashScope> kernels;
  if (path == Path::kDeviceKernels) kernels.emplace();
  model.eval();
  const tensor::Batch batch = models::parity_batch(reference);
  const models::ParityPass pass = models::parity_pass(model, reference);
  Pass out;
  out.logits = flat_rows(pass.logits().front().second);
  out.token_losses = losses_of(out.logits, batch.labels.reshape({-1}));
  const at::Tensor loss = pass.loss();
  out.loss = loss.item<double>();
  loss.backward();
  for (const tensor::ParameterPart& part : model.key_map()) {
    out.gradients[part.name] = models::hf_gradient(model, part).cpu().to(at::kDouble);
  }
  return out;
}

/// What transformers computed in float32.
Pass stored_pass(const tensor::NamedTensors& reference) {
  Pass out;
  for (const auto& [name, value] : reference) {
    if (name == "logits") out.logits = flat_rows(value);
    if (name == "loss") out.loss = value.item<double>();
    if (name.starts_with("grad.")) out.gradients[name.substr(5)] = value.to(at::kDouble);
  }
  const at::Tensor labels = models::parity_batch(reference).labels.reshape({-1});
  out.token_losses = losses_of(out.logits, labels);
  return out;
}

/// |found - wanted| / |wanted| in the L2 norm.
double distance(const at::Tensor& found, const at::Tensor& wanted) {
  return (found - wanted).norm().item<double>() / wanted.norm().item<double>();
}

struct Errors {
  double logits = 0;
  double token_loss = 0;  ///< root of the mean square, absolute
  double loss = 0;        ///< absolute
  double gradient = 0;    ///< of all parameters together
  double worst_gradient = 0;
};

/// Over the parameters of `wanted` that are trained.
Errors errors_of(const Pass& found, const Pass& wanted, const Pass& reference) {
  Errors errors;
  errors.logits = distance(found.logits, wanted.logits);
  const at::Tensor difference = found.token_losses - wanted.token_losses;
  errors.token_loss = difference.pow(2).mean().sqrt().item<double>();
  errors.loss = std::abs(found.loss - wanted.loss);
  std::vector<at::Tensor> all_found, all_wanted;
  for (const auto& [name, unused] : reference.gradients) {
    const at::Tensor& one = found.gradients.at(name);
    const at::Tensor& other = wanted.gradients.at(name);
    if (other.norm().item<double>() == 0) {
      EXPECT_EQ(one.norm().item<double>(), 0) << name;
      continue;
    }
    errors.worst_gradient = std::max(errors.worst_gradient, distance(one, other));
    all_found.push_back(one.flatten());
    all_wanted.push_back(other.flatten());
  }
  errors.gradient = distance(at::cat(all_found), at::cat(all_wanted));
  return errors;
}

bool has_in_config(const std::string& family, const char* word) {
  return read_file(test::golden_file(family, "config.json")).find(word) != std::string::npos;
}

class PlainPathTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    reference_ =
        test::read_trusted_safetensors(test::golden_file(GetParam(), "reference.safetensors"));
  }

  /// A pass in a dtype; with weights rounded to bfloat16 where asked.
  Pass pass_in(at::ScalarType dtype, bool is_rounded = false, Path path = Path::kPlain) const {
    const auto model = models::build_causal_lm(
        Json::parse_file(test::golden_file(GetParam(), "config.json")), dtype);
    test::give_memory(*model);
    test::load_tensors(
        *model, test::read_trusted_safetensors(test::golden_file(GetParam(), "model.safetensors")));
    if (is_rounded) {
      const auto narrow = models::build_causal_lm(
          Json::parse_file(test::golden_file(GetParam(), "config.json")), at::kBFloat16);
      const auto narrow_parameters = narrow->named_parameters();
      for (const auto& item : model->named_parameters()) {
        if (narrow_parameters[item.key()].scalar_type() != at::kBFloat16) continue;
        item.value().detach().copy_(item.value().detach().to(at::kBFloat16));
      }
    }
    if (path == Path::kDevice) move_to_device(*model);
    return run(*model, reference_, path);
  }

  void expect_float32_as_near(Path path) {
    const Pass truth = pass_in(at::kDouble);
    const Pass peer = stored_pass(reference_);
    const Errors ours = errors_of(pass_in(at::kFloat, false, path), truth, peer);
    const Errors peers = errors_of(peer, truth, peer);
    show("float32", ours, peers);
    EXPECT_LE(ours.logits, 2 * peers.logits);
    EXPECT_LE(ours.token_loss, 2 * peers.token_loss);
    EXPECT_LE(ours.loss, 2 * peers.token_loss);
    EXPECT_LE(ours.gradient, 2 * peers.gradient);
  }

  void expect_bfloat16_as_near(Path path) {
    const Json file = Json::parse_file(test::source_file("tests/golden/bfloat16.json"));
    const Json& stored = file.at("errors").at(GetParam());
    Errors peers;
    peers.logits = stored.at("logits").as_double();
    peers.token_loss = stored.at("token_loss").as_double();
    peers.gradient = stored.at("gradient").as_double();
    peers.worst_gradient = stored.at("worst_gradient").as_double();
    Pass found = pass_in(at::kBFloat16, false, path), truth = pass_in(at::kDouble, true);
    const at::Tensor padding = models::parity_batch(reference_).padding_mask;
    if (path != Path::kPlain && padding.defined()) {  // of which nothing is promised
      for (Pass* pass : {&found, &truth}) {
        pass->logits.masked_fill_(padding.reshape({-1, 1}), 0.0);
      }
    }
    const Errors ours = errors_of(found, truth, stored_pass(reference_));
    show("bfloat16", ours, peers);
    EXPECT_LE(ours.logits, 2 * peers.logits);
    EXPECT_LE(ours.token_loss, 2 * peers.token_loss);
    EXPECT_LE(ours.loss, 2 * peers.token_loss);
    EXPECT_LE(ours.gradient, 2 * peers.gradient);
    EXPECT_LE(ours.worst_gradient, 2 * peers.worst_gradient);
  }

  /// A line of the table that a comparison of both paths is read from.
  void show(const char* dtype, const Errors& ours, const Errors& peers) {
    std::printf("%-27s %-8s logits %.1e / %.1e  tokens %.1e / %.1e  gradient %.1e / %.1e\n",
                GetParam().c_str(), dtype, ours.logits, peers.logits, ours.token_loss,
                peers.token_loss, ours.gradient, peers.gradient);
  }

  tensor::NamedTensors reference_;
};

/// Where the truth itself could be wrong: transformers' float32 run is as near to it as float32
/// allows. Norms, softmax and tables of angles are float32 there.
TEST_P(PlainPathTest, Float64IsWhatTransformersComputes) {
  const Pass peer = stored_pass(reference_);
  const Errors errors = errors_of(peer, pass_in(at::kDouble), peer);
  EXPECT_LE(errors.logits, 5e-6);
  EXPECT_LE(errors.loss, 5e-6);
  EXPECT_LE(errors.gradient, 2e-5);
}

TEST_P(PlainPathTest, Float32IsNotFartherFromFloat64ThanTwiceTransformers) {
  expect_float32_as_near(Path::kPlain);
}

TEST_P(PlainPathTest, BFloat16IsNotFartherFromFloat64ThanTwiceTransformers) {
  expect_bfloat16_as_near(Path::kPlain);
}

/// Rounded once where the plain path rounds between operations, a bfloat16 router may find another
/// expert first of two that are as good: of families with experts only float32 is compared.
TEST_P(PlainPathTest, NeitherIsByTheKernelsOfADevice) {
  expect_float32_as_near(Path::kDeviceKernels);
  if (!has_in_config(GetParam(), "expert")) expect_bfloat16_as_near(Path::kDeviceKernels);
}

/// Of keys with equal scores a device's topk takes others than a CPU's: of families that choose
/// keys nothing is compared.
using DeviceTest = PlainPathTest;

TEST_P(DeviceTest, Float32IsNotFartherFromFloat64ThanTwiceTransformers) {
  expect_float32_as_near(Path::kDevice);
}

using BFloat16DeviceTest = PlainPathTest;

TEST_P(BFloat16DeviceTest, IsNotFartherFromFloat64ThanTwiceTransformers) {
  expect_bfloat16_as_near(Path::kDevice);
}

/// All families but those beside towers, whose text models have the layers of the ones without.
std::vector<std::string> families_without_towers() {
  std::vector<std::string> names = test::golden_families();
  std::erase_if(names, [](const std::string& name) { return name.ends_with("_tower"); });
  return names;
}

/// Those whose configuration has not the word; none without a device.
std::vector<std::string> families_on_a_device(const char* word) {
  const char* const asked = std::getenv("AUTOMODEL_TEST_DEVICE");
  if (asked == nullptr || std::string(asked) != "cuda") return {};
  // Before anything asks LibTorch for a device, whose answer it keeps; until the program ends.
  static const std::unique_ptr<tensor::CudaRuntime> cuda = tensor::open_cuda();
  std::vector<std::string> names = families_without_towers();
  std::erase_if(names, [&](const std::string& name) { return has_in_config(name, word); });
  return names;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceTest);
INSTANTIATE_TEST_SUITE_P(Families, DeviceTest,
                         testing::ValuesIn(families_on_a_device("index_topk")),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BFloat16DeviceTest);
INSTANTIATE_TEST_SUITE_P(Families, BFloat16DeviceTest,
                         testing::ValuesIn(families_on_a_device("expert")),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Families, PlainPathTest, testing::ValuesIn(families_without_towers()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace automodel
