#include "checkpoint/hf_folder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/remainder.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "checkpoint/hf_export.h"
#include "checkpoint/shards.h"
#include "core/error.h"
#include "core/file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::checkpoint {
namespace {

using test_shards::Shapes;

std::string data(const std::string& name) {
  return test::source_file("tests/checkpoint/data/" + name);
}

/// The tensors of the tiny Llama of data/make.py.
Shapes llama_shapes(bool has_head) {
  Shapes shapes = {{"model.embed_tokens.weight", {32, 16}}, {"model.norm.weight", {16}}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    shapes.push_back({layer + "self_attn.q_proj.weight", {16, 16}});
    shapes.push_back({layer + "self_attn.k_proj.weight", {8, 16}});
    shapes.push_back({layer + "self_attn.v_proj.weight", {8, 16}});
    shapes.push_back({layer + "self_attn.o_proj.weight", {16, 16}});
    shapes.push_back({layer + "mlp.gate_proj.weight", {24, 16}});
    shapes.push_back({layer + "mlp.up_proj.weight", {24, 16}});
    shapes.push_back({layer + "mlp.down_proj.weight", {16, 24}});
    shapes.push_back({layer + "input_layernorm.weight", {16}});
    shapes.push_back({layer + "post_attention_layernorm.weight", {16}});
  }
  if (has_head) shapes.push_back({"lm_head.weight", {32, 16}});
  return shapes;
}

tensor::KeyMap keys_of(const Shapes& shapes) {
  tensor::KeyMap keys;
  for (const auto& [name, shape] : shapes) keys.push_back({name, name, 0, shape});
  return keys;
}

/// What data/make.py filled the k-th tensor by name with, at global positions [first, last).
at::Tensor rule(int64_t k, int64_t first, int64_t last) {
  return (at::arange(first, last, at::kDouble).mul(7).add(13 * k)).remainder(251).sub(125).div(64);
}

/// Checks every element of a shard against the rule; `names` are those of the file, sorted.
void expect_rule(const tensor::FlatShard& shard, const HfFolder& folder) {
  const std::vector<std::string>& names = folder.names();
  for (const tensor::FlatSegment& segment : shard.segments) {
    std::string name = find_name(folder, segment.fqn).value_or("model.embed_tokens.weight");
    if (!folder.find(name)) name = "embed_tokens.weight";
    const int64_t k = std::find(names.begin(), names.end(), name) - names.begin();
    for (const tensor::ShardRun& run : tensor::shard_runs(segment.spec)) {
      const at::Tensor part = shard.view(segment).narrow(0, run.local, run.numel);
      EXPECT_TRUE(at::equal(part.to(at::kDouble), rule(k, run.global, run.global + run.numel)))
          << segment.fqn;
    }
  }
}

void save_folder(const std::string& path, const std::string& config,
                 const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  create_directories(path);
  write_file_atomic(path_join(path, "config.json"), config);
  write_safetensors(path_join(path, "model.safetensors"), tensors, {{"format", "pt"}});
}

TEST(HfFolder, ShardedFolderOfTransformersIsReadEqual) {
  const HfFolder folder = HfFolder::open(data("llama_bf16_sharded"));
  EXPECT_EQ(folder.file_names().size(), 3u);
  EXPECT_EQ(folder.storage_dtype(), at::kBFloat16);
  const Shapes shapes = llama_shapes(true);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    tensor::FlatShard shard = test_shards::whole(shapes, dtype);
    const LoadReport report =
        load_weights(folder, keys_of(shapes), std::span(&shard, 1), LoadOptions{});
    EXPECT_EQ(report.num_tensors, 21);
    EXPECT_EQ(report.num_bytes, 9888u);
    expect_rule(shard, folder);
  }
}

TEST(HfFolder, EveryRankReadsItsPart) {
  const HfFolder folder = HfFolder::open(data("llama_bf16_sharded"));
  const Shapes shapes = llama_shapes(true);
  uint64_t bytes = 0;
  for (int rank = 0; rank < 3; ++rank) {
    tensor::FlatShard flat = test_shards::part(shapes, at::kFloat, rank, 3);
    bytes += load_weights(folder, keys_of(shapes), std::span(&flat, 1), LoadOptions{}).num_bytes;
    expect_rule(flat, folder);
    tensor::FlatShard boxes = test_shards::columns(shapes, at::kFloat, rank, 3);
    load_weights(folder, keys_of(shapes), std::span(&boxes, 1), LoadOptions{});
    expect_rule(boxes, folder);
  }
  EXPECT_EQ(bytes, 9888u);  // each byte once
}

TEST(HfFolder, TiedFolderNeedsNoHead) {
  const HfFolder folder = HfFolder::open(data("llama_tied"));
  EXPECT_EQ(folder.storage_dtype(), at::kFloat);
  const Shapes shapes = llama_shapes(false);
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  test::Warnings warnings;
  load_weights(folder, keys_of(shapes), std::span(&shard, 1), LoadOptions{.reporter = &warnings});
  expect_rule(shard, folder);
  EXPECT_TRUE(warnings.texts.empty());
}

TEST(HfFolder, BaseModelFolderLoadsAndTheHeadIsMade) {
  const HfFolder folder = HfFolder::open(data("llama_base_fp16"));
  const Shapes shapes = llama_shapes(true);
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  test::Warnings warnings;
  load_weights(folder, keys_of(shapes), std::span(&shard, 1), LoadOptions{.reporter = &warnings});
  expect_rule(shard, folder);
  EXPECT_EQ(warnings.texts,
            std::vector<std::string>{folder.path() + ": no lm_head.weight; it is made from "
                                                     "model.embed_tokens.weight"});
}

/// Where a language model has its tensors, alone and beside a tower.
class HfFolderHead : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, HfFolderHead, testing::Values("", "language_model."));

TEST_P(HfFolderHead, OfATiedModelMustEqualTheEmbedding) {
  const test::TemporaryDirectory folder;
  const std::string table = GetParam() + "model.embed_tokens.weight";
  const std::string head = GetParam() + "lm_head.weight";
  const Shapes shapes = {{table, {4, 3}}};
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  const at::Tensor embedding = at::arange(12).to(at::kFloat).view({4, 3});
  save_folder(folder.file("equal"), "{}", {{table, embedding}, {head, embedding}});
  load_weights(HfFolder::open(folder.file("equal")), keys_of(shapes), std::span(&shard, 1), {});
  save_folder(folder.file("other"), "{}", {{table, embedding}, {head, embedding.mul(2)}});
  EXPECT_EQ(test::error_of<InputError>([&] {
              load_weights(HfFolder::open(folder.file("other")), keys_of(shapes),
                           std::span(&shard, 1), {});
            }),
            cat("weights in ", folder.file("other"), " do not fit the config: ", head,
                " differs from ", table, ", but the config ties them (tie_word_embeddings)"));
}

TEST_P(HfFolderHead, OfATiedModelMayBeAlone) {
  const test::TemporaryDirectory folder;
  const std::string table = GetParam() + "model.embed_tokens.weight";
  const std::string head = GetParam() + "lm_head.weight";
  const Shapes shapes = {{table, {4, 3}}};
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  const at::Tensor values = at::arange(12).to(at::kFloat).view({4, 3});
  save_folder(folder.path(), "{}", {{head, values}});
  load_weights(HfFolder::open(folder.path()), keys_of(shapes), std::span(&shard, 1), {});
  EXPECT_TRUE(at::equal(shard.view(shard.segments[0]).view({4, 3}), values));
  const Shapes untied = {{table, {4, 3}}, {head, {4, 3}}};
  EXPECT_THAT(join(check_weights(HfFolder::open(folder.path()), keys_of(untied), {}), "\n"),
              testing::HasSubstr("missing"));
}

TEST_P(HfFolderHead, IsMadeOfTheEmbeddingWhereItIsMissing) {
  const test::TemporaryDirectory folder;
  const std::string table = GetParam() + "model.embed_tokens.weight";
  const std::string head = GetParam() + "lm_head.weight";
  save_folder(folder.path(), "{}", {{table, at::ones({4, 3})}});
  const Shapes shapes = {{table, {4, 3}}, {head, {4, 3}}};
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  test::Warnings warnings;
  load_weights(HfFolder::open(folder.path()), keys_of(shapes), std::span(&shard, 1),
               LoadOptions{.reporter = &warnings});
  EXPECT_EQ(warnings.texts, std::vector<std::string>{
                                cat(folder.path(), ": no ", head, "; it is made from ", table)});
  EXPECT_EQ(shard.view(shard.segments[1]).sum().item<double>(), 12);
}

TEST(HfFolder, StackedExpertsAreFoundOneByOne) {
  const test::TemporaryDirectory folder;
  const at::Tensor upper = at::arange(2 * 6 * 4).to(at::kFloat).view({2, 6, 4});
  const at::Tensor lower = at::arange(2 * 4 * 3).to(at::kFloat).view({2, 4, 3});
  save_folder(folder.path(), "{}",
              {{"m.experts.gate_up_proj", upper}, {"m.experts.down_proj", lower}});
  const HfFolder opened = HfFolder::open(folder.path());
  EXPECT_EQ(opened.names().size(), 2U);
  const auto read = [&](const std::string& name) {
    const HfFolder::Place place = *opened.find(name);
    at::Tensor out = at::empty(place.entry->shape);
    opened.read_elements(place, 0, out.view({-1}));
    return out;
  };
  EXPECT_TRUE(at::equal(read("m.experts.1.gate_proj.weight"), upper[1].narrow(0, 0, 3)));
  EXPECT_TRUE(at::equal(read("m.experts.1.up_proj.weight"), upper[1].narrow(0, 3, 3)));
  EXPECT_TRUE(at::equal(read("m.experts.1.down_proj.weight"), lower[1]));
  EXPECT_FALSE(opened.find("m.experts.2.down_proj.weight"));
}

TEST(HfFolder, StacksOfOtherShapesAreNotCut) {
  const test::TemporaryDirectory folder;
  const auto is_cut = [&](const char* name, at::IntArrayRef upper, at::IntArrayRef lower) {
    save_folder(folder.file(name), "{}",
                {{"m.experts.gate_up_proj", at::zeros(upper)},
                 {"m.experts.down_proj", at::zeros(lower)},
                 {"norm.weight", at::zeros({2})}});
    return HfFolder::open(folder.file(name)).find("m.experts.0.up_proj.weight").has_value();
  };
  EXPECT_TRUE(is_cut("right", {2, 6, 4}, {2, 4, 3}));
  EXPECT_FALSE(is_cut("transposed", {2, 4, 6}, {2, 3, 4}));
  EXPECT_FALSE(is_cut("odd", {2, 5, 4}, {2, 4, 2}));
  EXPECT_FALSE(is_cut("empty", {1000000000, 0, 16}, {1000000000, 16, 0}));
}

TEST(HfFolder, OldBuffersAreIgnored) {
  const test::TemporaryDirectory folder;
  save_folder(folder.path(), "{}",
              {{"h.0.attn.bias", at::zeros({1, 1, 4, 4})},
               {"h.0.attn.masked_bias", at::zeros({})},
               {"gpt_neox.layers.0.attention.bias", at::ones({1, 1, 4, 4}, at::kBool)},
               {"gpt_neox.layers.0.attention.masked_bias", at::zeros({})},
               {"layers.0.self_attn.rotary_emb.inv_freq", at::zeros({2})},
               {"wte.weight", at::zeros({4, 3})}});
  const Shapes shapes = {{"transformer.wte.weight", {4, 3}}};
  EXPECT_TRUE(check_weights(HfFolder::open(folder.path()), keys_of(shapes), {}).empty());
}

TEST(HfFolder, WeightsThatDoNotFitAreNamed) {
  const test::TemporaryDirectory folder;
  std::vector<std::pair<std::string, at::Tensor>> tensors = {
      {"model.norm.weight", at::zeros({5})},
      {"model.quantized.weight", at::zeros({3}, at::TensorOptions().dtype(at::kChar))}};
  for (int i = 0; i < 12; ++i) tensors.push_back({cat("extra.", 10 + i), at::zeros({1})});
  save_folder(folder.path(), "{}", tensors);
  const Shapes shapes = {{"model.embed_tokens.weight", {4, 3}},
                         {"model.norm.weight", {6}},
                         {"model.quantized.weight", {3}},
                         {"lm_head.weight", {4, 3}}};
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  EXPECT_EQ(test::error_of<InputError>([&] {
              load_weights(HfFolder::open(folder.path()), keys_of(shapes), std::span(&shard, 1),
                           {});
            }),
            "weights in " + folder.path() +
                " do not fit the config:\n"
                "  missing (2): model.embed_tokens.weight, lm_head.weight\n"
                "  not in the model (12): extra.10, extra.11, extra.12, extra.13, extra.14, "
                "extra.15, extra.16, extra.17, extra.18, extra.19 and 2 more\n"
                "  of another shape (1): model.norm.weight is [5] in the file and [6] in the "
                "config\n"
                "  of a dtype that is not read (1): model.quantized.weight is I8");
}

TEST(HfFolder, SkippedPrefixesAreNeitherLoadedNorMissed) {
  const test::TemporaryDirectory folder;
  save_folder(folder.path(), "{}",
              {{"norm.weight", at::zeros({2})}, {"score.weight", at::zeros({1, 2})}});
  const Shapes shapes = {{"norm.weight", {2}}, {"lm_head.weight", {4, 2}}};
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  LoadOptions options;
  options.skipped_prefixes = {"score.", "lm_head."};
  const LoadReport report =
      load_weights(HfFolder::open(folder.path()), keys_of(shapes), std::span(&shard, 1), options);
  EXPECT_EQ(report.skipped, std::vector<std::string>{"lm_head.weight"});
}

TEST(HfFolder, AnAbsentTensorIsReadFromItsStandIn) {
  const test::TemporaryDirectory folder;
  save_folder(folder.path(), "{}", {{"model.a", at::ones({2})}});
  const Shapes shapes = {{"model.a", {2}}, {"model.b", {2}}};
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  LoadOptions options;
  options.stand_ins = {{"model.b", "model.a"}};
  load_weights(HfFolder::open(folder.path()), keys_of(shapes), std::span(&shard, 1), options);
  EXPECT_EQ(shard.view(shard.segments[1]).sum().item<float>(), 2.0F);
}

TEST(HfFolder, FoldersThatAreNoneAreRefused) {
  const test::TemporaryDirectory folder;
  EXPECT_EQ(test::error_of<InputError>([&] { HfFolder::open(folder.file("none")); }),
            folder.file("none") + ": no such folder");
  EXPECT_EQ(test::error_of<InputError>([&] { HfFolder::open(folder.path()); }),
            folder.path() + ": no config.json; this is not a Hugging Face model folder");
  const test::TemporaryDirectory checkpoint;
  create_directories(checkpoint.file("model/consolidated"));
  checkpoint.write("model/consolidated/config.json", "{}");
  EXPECT_EQ(test::error_of<InputError>([&] { HfFolder::open(checkpoint.path()); }),
            checkpoint.path() +
                ": no config.json; this is not a Hugging Face model folder, but a "
                "checkpoint, whose model is " +
                checkpoint.file("model/consolidated"));
  checkpoint.write("adapter_config.json", "{}");
  EXPECT_EQ(test::error_of<InputError>([&] { HfFolder::open(checkpoint.path()); }),
            checkpoint.path() +
                ": no config.json; this is not a Hugging Face model folder, but an "
                "adapter; merge-lora makes a model of it and its base");
  folder.write("config.json", "{}");
  EXPECT_EQ(
      test::error_of<InputError>([&] { HfFolder::open(folder.path()); }),
      folder.path() + ": neither model.safetensors nor model.safetensors.index.json is there");
  folder.write("pytorch_model.bin", "x");
  EXPECT_EQ(test::error_of<InputError>([&] { HfFolder::open(folder.path()); }),
            folder.path() +
                ": has weights only as pytorch_model.bin, a Python pickle, which is never loaded "
                "because it can run code; save the model as safetensors (save_pretrained does)");
}

TEST(HfFolder, WrongIndexIsRefused) {
  const test::TemporaryDirectory folder;
  folder.write("config.json", "{}");
  const std::string index = folder.file("model.safetensors.index.json");
  const auto error_with = [&](const std::string& text) {
    folder.write("model.safetensors.index.json", text);
    return test::error_of<InputError>([&] { HfFolder::open(folder.path()); });
  };
  EXPECT_EQ(error_with("{}"), index + ": no object weight_map");
  EXPECT_EQ(error_with(R"({"weight_map":{"a":1}})"), index + ": weight_map: 'a' is an integer");
  EXPECT_EQ(error_with(R"({"weight_map":{"a":"../b"}})"),
            index + ": weight_map names a file outside the folder: '../b'");
  EXPECT_EQ(error_with(R"({"weight_map":{"a":"b.safetensors"}})"),
            index + ": names b.safetensors, which is not there");
  const std::vector<std::pair<std::string, at::Tensor>> tensors = {{"x", at::zeros({1})}};
  write_safetensors(folder.file("b.safetensors"), tensors, {});
  EXPECT_EQ(error_with(R"({"weight_map":{"a":"b.safetensors"}})"),
            index + ": tensor 'a' should be in b.safetensors, but is not");
}

/// Name, dtype, shape and file of every tensor of a folder.
std::map<std::string, std::string> contents(const HfFolder& folder) {
  std::map<std::string, std::string> texts;
  for (const std::string& name : folder.names()) {
    const HfFolder::Place place = *folder.find(name);
    texts[name] = cat(folder.file_names()[place.file], " ", c10::toString(place.entry->dtype), " [",
                      join(place.entry->shape), "]");
  }
  return texts;
}

TEST(HfExport, FollowsTheOriginalsFilesAndDtypes) {
  const test::TemporaryDirectory out;
  const HfFolder original = HfFolder::open(data("llama_bf16_sharded"));
  const Shapes shapes = llama_shapes(true);
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);  // fp32 masters
  load_weights(original, keys_of(shapes), std::span(&shard, 1), {});
  const ShardSource source(std::span(&shard, 1));
  HfExport what;
  what.config = original.config();
  what.original_folder = original.path();
  const std::vector<FileRecord> records = save_hf_folder(out.path(), source, what);

  const HfFolder saved = HfFolder::open(out.path());
  EXPECT_EQ(contents(saved), contents(original));
  EXPECT_EQ(saved.config().get("dtype", ""), "bfloat16");
  for (const std::string& name : original.names()) {
    const auto a = original.find(name);
    const auto b = saved.find(name);
    EXPECT_TRUE(at::equal(original.file(a->file).read(name), saved.file(b->file).read(name)));
  }
  EXPECT_EQ(read_file(out.file("generation_config.json")),
            read_file(path_join(original.path(), "generation_config.json")));
  for (const FileRecord& record : records) {
    EXPECT_EQ(record.checksum, checksum_of_file(record.path));
    EXPECT_EQ(record.num_bytes, file_size(record.path));
  }
  EXPECT_EQ(records.size(), list_directory(out.path()).size());
}

TEST(HfExport, KeptTensorsAreTheOriginalsByteForByte) {
  const test::TemporaryDirectory folder;
  const test::TemporaryDirectory out;
  const at::Tensor tower = at::ones({2}).mul_(-0.3).to(at::kBFloat16);
  save_folder(folder.path(), "{}",
              {{"model.a", at::ones({2})}, {"tower.w", tower}, {"other.w", tower}});
  const Shapes shapes = {{"model.a", {2}}};
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  HfExport what;
  what.original_folder = folder.path();
  what.kept_prefixes = {"tower."};
  save_hf_folder(out.path(), ShardSource(std::span(&shard, 1)), what);
  const HfFolder saved = HfFolder::open(out.path());
  EXPECT_EQ(saved.names(), (std::vector<std::string>{"model.a", "tower.w"}));
  const HfFolder::Place place = *saved.find("tower.w");
  EXPECT_EQ(place.entry->dtype, at::kBFloat16);
  EXPECT_TRUE(at::equal(saved.file(place.file).read("tower.w"), tower));
}

TEST(HfExport, WithoutOriginalSplitsBySizeAndCopiesTheTokenizer) {
  const test::TemporaryDirectory out;
  const test::TemporaryDirectory tokenizer;
  tokenizer.write("tokenizer.json", "{ \"x\" :1}");
  tokenizer.write("tokenizer_config.json", "{}");
  tokenizer.write("chat_template.jinja", "t");
  tokenizer.write("notes.txt", "no");
  const Shapes shapes = {{"a", {100}}, {"b", {100}}, {"c", {300}}, {"d", {1}}};
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  test_shards::number(shard, shapes, 0);
  HfExport what;
  what.config["eos_token_id"] = Json(7);
  what.config["decoder_start_token_id"] = Json(0);
  what.config["torch_dtype"] = Json("bfloat16");
  what.tokenizer_folder = tokenizer.path();
  what.max_file_bytes = 800;
  save_hf_folder(out.path(), ShardSource(std::span(&shard, 1)), what);
  EXPECT_EQ(list_directory(out.path()),
            (std::vector<std::string>{
                "chat_template.jinja", "config.json", "generation_config.json",
                "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                "model-00003-of-00003.safetensors", "model.safetensors.index.json",
                "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(read_file(out.file("tokenizer.json")), "{ \"x\" :1}");
  EXPECT_EQ(Json::parse_file(out.file("config.json")).dump(),
            R"({"eos_token_id": 7, "decoder_start_token_id": 0, "dtype": "float32"})");
  EXPECT_EQ(Json::parse_file(out.file("generation_config.json")).dump(),
            R"({"_from_model_config": true, "decoder_start_token_id": 0, "eos_token_id": 7})");
  EXPECT_EQ(
      Json::parse_file(out.file("model.safetensors.index.json")).dump(),
      R"({"metadata": {"total_size": 2004}, "weight_map": )"
      R"({"a": "model-00001-of-00003.safetensors", "b": "model-00001-of-00003.safetensors", )"
      R"("c": "model-00002-of-00003.safetensors", "d": "model-00003-of-00003.safetensors"}})");
}

/// transformers 5 writes infinities as objects, transformers 4 as Python's json does.
TEST(HfExport, InfinitiesKeepTheFormOfTheBasesConfig) {
  const test::TemporaryDirectory base, out;
  const Shapes shapes = {{"a", {2}}};
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  test_shards::number(shard, shapes, 0);
  for (const char* form :
       {R"({"a": [0.0, {"__float__": "Infinity"}]})", R"({"a": [0.0, Infinity]})"}) {
    base.write("config.json", form);
    HfExport what;
    what.config = Json::parse_file(base.file("config.json"));
    what.original_folder = base.path();
    save_hf_folder(out.path(), ShardSource(std::span(&shard, 1)), what);
    std::string wanted = form;
    wanted.insert(wanted.size() - 1, R"(, "dtype": "float32")");
    const std::string written = read_file(out.file("config.json"));
    EXPECT_EQ(Json::parse(written, "").dump(), Json::parse(wanted, "").dump());
    EXPECT_EQ(written.find("__float__") != std::string::npos,
              wanted.find("__float__") != std::string::npos);
  }
}

TEST(HfExport, ATokenizersFurtherTemplatesAreCopiedWhereItsOwnIs) {
  const test::TemporaryDirectory tokenizer, kept, replaced;
  std::filesystem::create_directories(tokenizer.file("additional_chat_templates"));
  tokenizer.write("chat_template.jinja", "t");
  tokenizer.write("additional_chat_templates/tool_use.jinja", "tools");
  tokenizer.write("additional_chat_templates/notes.txt", "x");
  const auto records = copy_tokenizer_files(tokenizer.path(), kept.path());
  EXPECT_EQ(records.size(), 2U);
  EXPECT_EQ(read_file(kept.file("additional_chat_templates/tool_use.jinja")), "tools");
  copy_tokenizer_files(tokenizer.path(), replaced.path(), "of the recipe");
  EXPECT_EQ(list_directory(replaced.path()), std::vector<std::string>{"chat_template.jinja"});
}

TEST(HfExport, OneFileIsNumberedToo) {
  const std::vector<TensorInfo> tensors = {{"a", at::kFloat, {2}}};
  const std::vector<HfFile> files = plan_hf_files(tensors, HfExport{});
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].name, "model-00001-of-00001.safetensors");
}

TEST(HfExport, RanksShareTheFiles) {
  const test::TemporaryDirectory out;
  const Shapes shapes = {{"a", {100}}, {"b", {100}}, {"c", {100}}};
  tensor::FlatShard shard = test_shards::whole(shapes, at::kFloat);
  const ShardSource source(std::span(&shard, 1));
  HfExport what;
  what.max_file_bytes = 400;
  const std::vector<HfFile> files = plan_hf_files(source.tensors(), what);
  EXPECT_EQ(write_hf_weights(out.path(), files, source, {0, 2}).size(), 2u);
  EXPECT_EQ(write_hf_weights(out.path(), files, source, {1, 2}).size(), 1u);
  write_hf_texts(out.path(), files, what);
  EXPECT_EQ(HfFolder::open(out.path()).names(), (std::vector<std::string>{"a", "b", "c"}));
}

}  // namespace
}  // namespace automodel::checkpoint
