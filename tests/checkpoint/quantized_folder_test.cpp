#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/hf_export.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/shards.h"
#include "core/error.h"
#include "core/file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::checkpoint {
namespace {

using test::TemporaryDirectory;
using test_shards::Shapes;

constexpr const char* kGoldens[] = {"qwen3_fp8", "deepseek_v3_fp8", "mistral_fp8_static",
                                    "llama_compressed_channel", "gpt_oss_mxfp4"};

std::string golden(const std::string& name) {
  return test::source_file("tests/golden/quantized/" + name);
}

/// To the last bit; NaNs of one kind are equal too.
bool is_same(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  return x.scalar_type() == y.scalar_type() && x.numel() == y.numel() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

Shapes shapes_of(const HfFolder& folder) {
  Shapes shapes;
  for (const std::string& name : folder.names()) {
    shapes.emplace_back(name, folder.find(name)->entry->shape);
  }
  return shapes;
}

tensor::KeyMap keys_of(const Shapes& shapes) {
  tensor::KeyMap keys;
  for (const auto& [name, shape] : shapes) keys.push_back({name, name, 0, shape});
  return keys;
}

TEST(QuantizedFolder, ValuesAreThoseOfTransformers) {
  for (const char* name : kGoldens) {
    const HfFolder folder = HfFolder::open(golden(name));
    EXPECT_EQ(folder.storage_dtype(), at::kBFloat16);
    const Shapes shapes = shapes_of(folder);
    for (const auto& [dtype, file] : {std::pair(at::kBFloat16, "/dequantized_bfloat16.safetensors"),
                                      std::pair(at::kFloat, "/dequantized_float32.safetensors")}) {
      const SafetensorsFile wanted(golden(name) + file);
      tensor::FlatShard shard = test_shards::whole(shapes, dtype);
      const LoadReport report = load_weights(folder, keys_of(shapes), std::span(&shard, 1), {});
      int64_t num_compared = 0;
      for (const tensor::FlatSegment& segment : shard.segments) {
        if (wanted.find(segment.fqn) == nullptr) continue;
        ++num_compared;
        EXPECT_EQ(segment.spec.global_shape, wanted.at(segment.fqn).shape) << segment.fqn;
        EXPECT_TRUE(is_same(shard.view(segment), wanted.read(segment.fqn)))
            << name << " " << segment.fqn;
      }
      EXPECT_EQ(num_compared, static_cast<int64_t>(wanted.tensors().size())) << name;
      const bool is_part = dtype == at::kFloat;
      EXPECT_EQ(report.num_dequantized, is_part ? num_compared : report.num_dequantized);
      EXPECT_EQ(report.num_tensors, static_cast<int64_t>(shapes.size()));
    }
  }
}

TEST(QuantizedFolder, EveryRankReadsItsPartOfTheSameValues) {
  for (const char* name : kGoldens) {
    const HfFolder folder = HfFolder::open(golden(name));
    const SafetensorsFile wanted(golden(name) + "/dequantized_bfloat16.safetensors");
    const Shapes shapes = shapes_of(folder);
    for (int rank = 0; rank < 3; ++rank) {
      for (const auto make : {test_shards::part, test_shards::columns, test_shards::fused}) {
        tensor::FlatShard shard = make(shapes, at::kBFloat16, rank, 3);
        load_weights(folder, keys_of(shapes), std::span(&shard, 1), {});
        for (const tensor::FlatSegment& segment : shard.segments) {
          const at::Tensor whole = wanted.read(segment.fqn).reshape({-1});
          for (const tensor::ShardRun& run : tensor::shard_runs(segment.spec)) {
            EXPECT_TRUE(is_same(shard.view(segment).narrow(0, run.local, run.numel),
                                whole.narrow(0, run.global, run.numel)))
                << name << " " << segment.fqn << " from " << run.global;
          }
        }
      }
    }
  }
}

TEST(QuantizedFolder, APieceOfATensorIsReadAsWell) {
  for (const char* name : kGoldens) {
    const HfFolder folder = HfFolder::open(golden(name));
    const SafetensorsFile wanted(golden(name) + "/dequantized_bfloat16.safetensors");
    for (const std::string& tensor : folder.names()) {
      const HfFolder::Place place = *folder.find(tensor);
      const int64_t numel = place.entry->numel();
      const int64_t first = numel / 3;
      const at::Tensor piece = at::empty({numel / 2}, at::TensorOptions().dtype(at::kBFloat16));
      folder.read_elements(place, first, piece);
      EXPECT_TRUE(is_same(piece, wanted.read(tensor).reshape({-1}).narrow(0, first, numel / 2)))
          << name << " " << tensor;
    }
  }
}

TEST(QuantizedFolder, AnExportHoldsFloatsInTheDtypeOfTheTraining) {
  const HfFolder folder = HfFolder::open(golden("qwen3_fp8"));
  const Shapes shapes = shapes_of(folder);
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  load_weights(folder, keys_of(shapes), std::span(&shard, 1), {});
  const TemporaryDirectory out;
  save_hf_folder(out.path(), ShardSource(std::span(&shard, 1)),
                 {.config = folder.config(), .original_folder = folder.path()});
  const HfFolder saved = HfFolder::open(out.path());
  EXPECT_FALSE(saved.config().contains("quantization_config"));
  EXPECT_FALSE(saved.quantization().has_value());
  EXPECT_EQ(saved.find("model.layers.0.mlp.up_proj.weight")->entry->dtype, at::kFloat);
  EXPECT_EQ(saved.find("model.norm.weight")->entry->dtype, at::kBFloat16);
  EXPECT_EQ(saved.names(), folder.names());
}

/// A folder of these tensors with these settings of quantization.
std::string make_folder(const TemporaryDirectory& folder, const std::string& settings,
                        const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  write_file_atomic(folder.file("config.json"), cat("{\"quantization_config\": ", settings, "}"));
  write_safetensors(folder.file("model.safetensors"), tensors, {{"format", "pt"}});
  return folder.path();
}

at::Tensor zeros(std::vector<int64_t> shape, at::ScalarType dtype) {
  return at::zeros(shape, at::TensorOptions().dtype(at::kByte)).view(dtype);
}

at::Tensor ones(std::vector<int64_t> shape) {
  return at::ones(shape, at::TensorOptions().dtype(at::kFloat));
}

constexpr const char* kBlocked =
    R"({"quant_method": "fp8", "weight_block_size": [4, 4], "activation_scheme": "dynamic"})";

TEST(QuantizedFolder, WrongScalesAreNamed) {
  struct Case {
    const char* settings;
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    const char* text;
  };
  const at::Tensor weight = zeros({6, 8}, at::kFloat8_e4m3fn);
  const Case cases[] = {
      {kBlocked,
       {{"a.weight", weight}},
       ": tensor 'a.weight' is F8_E4M3, and the folder has no a.weight_scale_inv to dequantize it "
       "with"},
      {kBlocked,
       {{"a.weight", weight}, {"a.weight_scale_inv", ones({1, 2})}},
       ": tensor 'a.weight_scale_inv' is [1, 2]; the scales of a.weight [6, 8] in blocks of [4, 4] "
       "would be [2, 2]"},
      {kBlocked,
       {{"a.weight", weight}, {"a.weight_scale_inv", at::ones({2, 2}, at::kLong)}},
       ": tensor 'a.weight_scale_inv' is I64, no dtype of scales: F32, BF16, F16, F8_E8M0 or U8"},
      {R"({"quant_method": "fp8"})",
       {{"a.weight", weight}, {"a.weight_scale_inv", ones({2, 2})}},
       ": tensor 'a.weight_scale_inv' is [2, 2]; the scales of a.weight [6, 8] would be [6, 1] or "
       "one number"},
      {R"({"quant_method": "mxfp4"})",
       {{"e.up_blocks", zeros({2, 3, 1, 16}, at::kByte)}},
       ": tensor 'e.up_blocks' is mxfp4, and the folder has no e.up_scales to dequantize it with"},
      {R"({"quant_method": "mxfp4"})",
       {{"e.up_blocks", zeros({2, 3, 1, 16}, at::kByte)},
        {"e.up_scales", zeros({2, 3}, at::kByte)}},
       ": tensor 'e.up_scales' is U8 [2, 3]; the scales of e.up_blocks would be U8 [2, 3, 1]"},
      {R"({"quant_method": "mxfp4"})",
       {{"e.up_blocks", zeros({2, 3, 8}, at::kByte)}, {"e.up_scales", zeros({2, 3}, at::kByte)}},
       ": tensor 'e.up_blocks' is U8 [2, 3, 8]; blocks of mxfp4 are U8 [experts, out, in / 32, "
       "16]"},
  };
  for (const Case& wrong : cases) {
    const TemporaryDirectory folder;
    const std::string path = make_folder(folder, wrong.settings, wrong.tensors);
    EXPECT_EQ(test::error_of<InputError>([&] { HfFolder::open(path); }),
              path + "/model.safetensors" + wrong.text);
  }
}

TEST(QuantizedFolder, ScalesWithoutAQuantizedWeightAreNoTensorsOfTheModel) {
  const TemporaryDirectory folder;
  const at::Tensor weight = at::ones({4, 4}, at::kBFloat16);
  const HfFolder opened = HfFolder::open(
      make_folder(folder, kBlocked, {{"a.weight", weight}, {"a.weight_scale_inv", ones({1, 1})}}));
  EXPECT_THAT(check_weights(opened, {{"a.weight", "a.weight", 0, {4, 4}}}, {}),
              testing::ElementsAre("not in the model (1): a.weight_scale_inv"));
}

TEST(QuantizedFolder, ScalesMayBePowersOfTwoInAByte) {
  const TemporaryDirectory folder;
  const at::Tensor weight = at::full({2, 2}, 0x40, at::kByte).view(at::kFloat8_e4m3fn);  // 2
  const at::Tensor scale = at::full({1, 1}, 130, at::kByte);
  const auto read = [&](const at::Tensor& scales) {
    const HfFolder opened = HfFolder::open(
        make_folder(folder, kBlocked, {{"a.weight", weight}, {"a.weight_scale_inv", scales}}));
    const at::Tensor out = at::empty({4}, at::TensorOptions().dtype(at::kFloat));
    opened.read_elements(*opened.find("a.weight"), 0, out);
    return out;
  };
  const at::Tensor wanted = at::full({4}, 16.0, at::kFloat);
  EXPECT_TRUE(is_same(read(scale), wanted));
  EXPECT_TRUE(is_same(read(scale.view(at::kFloat8_e8m0fnu)), wanted));
}

TEST(QuantizedFolder, OtherMethodsAreRefusedWithThoseThatAreRead) {
  const std::string rest =
      " is not in this version; weights are read in fp8, mxfp4 and compressed-tensors (format "
      "float-quantized)";
  const auto refusal = [](const std::string& settings) {
    const Json config = Json::parse(cat("{\"quantization_config\": ", settings, "}"), "config");
    return test::error_of<UnsupportedError>([&] { read_quantization(config); });
  };
  const std::string begin = "config.json: quantization_config: ";
  EXPECT_EQ(refusal(R"({"quant_method": "awq"})"), begin + "quant_method 'awq'" + rest);
  EXPECT_EQ(refusal(R"({"quant_method": "compressed-tensors", "format": "pack-quantized"})"),
            begin + "format 'pack-quantized' of compressed-tensors" + rest);
  const Json malformed = Json::parse(
      R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": 128}})", "config");
  EXPECT_EQ(test::error_of<InputError>([&] { read_quantization(malformed); }),
            begin + "weight_block_size is 128, not two sizes");
  EXPECT_FALSE(read_quantization(Json::parse(R"({"quantization_config": null})", "config")));
}

TEST(QuantizedFolder, SettingsThatMeanNothingAreNamed) {
  const auto fault = [](const std::string& settings) {
    const Json config = Json::parse(cat(R"({"quantization_config": )", settings, "}"), "config");
    return test::error_of<InputError>([&] { read_quantization(config); });
  };
  const auto blocks = [&](const std::string& structure) {
    return fault(cat(R"({"quant_method": "compressed-tensors", "format": "float-quantized",
        "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float", "strategy": "block",
        "block_structure": )",
                     structure, "}}}}"));
  };
  const std::string begin = "config.json: quantization_config: ";
  for (const char* structure : {"[128, 0]", "[-1, 128]", R"(["a", 3])", "[128]"}) {
    const std::string text = blocks(structure);
    EXPECT_EQ(text.find(begin + "block_structure is "), 0U) << text;
  }
  const std::string text = fault(R"({"quant_method": "compressed-tensors", "format": 3})");
  EXPECT_EQ(text.find(begin), 0U) << text;
}

TEST(QuantizedFolder, TheTextModelsSettingsCountWhereTheWholeHasNone) {
  const Json config = Json::parse(R"({"quantization_config": null, "text_config":
      {"quantization_config": {"quant_method": "mxfp4"}}})",
                                  "config");
  EXPECT_EQ(read_quantization(config)->method, Quantization::Method::kMxfp4);
}

TEST(QuantizedFolder, ScalesAreNoSignOfTheDtypeToTrainIn) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("base");
  create_directories(path);
  Json config = Json::parse_file(path_join(golden("qwen3_fp8"), "config.json"));
  config.erase("dtype");
  config.erase("torch_dtype");
  write_file_atomic(path_join(path, "config.json"), config.dump());
  write_file_atomic(path_join(path, "model.safetensors"),
                    read_file(path_join(golden("qwen3_fp8"), "model.safetensors")));
  EXPECT_EQ(HfFolder::open(path).storage_dtype(), at::kBFloat16);
}

}  // namespace
}  // namespace automodel::checkpoint
