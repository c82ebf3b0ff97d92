#include "checkpoint/sharded.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/shards.h"
#include "core/error.h"
#include "core/file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::checkpoint {
namespace {

using test_shards::Shapes;

const Shapes& shapes() {
  static const Shapes kShapes = {
      {"embed.weight", {11, 6}}, {"norm.weight", {6}}, {"up.weight", {9, 4}}, {"empty", {0, 4}}};
  return kShapes;
}

using MakeShard = tensor::FlatShard (*)(const Shapes&, at::ScalarType, int, int);

/// Saves parameters and one optimizer state as `world` ranks do.
void save_numbered(const std::string& directory, MakeShard make, int world) {
  for (int rank = 0; rank < world; ++rank) {
    tensor::FlatShard parameters = make(shapes(), at::kFloat, rank, world);
    tensor::FlatShard state = make(shapes(), at::kFloat, rank, world);
    test_shards::number(parameters, shapes(), 0);
    test_shards::number(state, shapes(), 500'000);
    const std::vector<NamedShards> groups = {{"", std::span(&parameters, 1)},
                                             {"exp_avg.", std::span(&state, 1)}};
    save_shards(directory, {"model", rank, world}, groups);
  }
  finish_shards(directory, {"model", 0, world});
}

void expect_numbered(const std::string& directory, MakeShard make, int world) {
  for (int rank = 0; rank < world; ++rank) {
    tensor::FlatShard parameters = make(shapes(), at::kFloat, rank, world);
    tensor::FlatShard state = make(shapes(), at::kFloat, rank, world);
    const std::vector<NamedShards> groups = {{"", std::span(&parameters, 1)},
                                             {"exp_avg.", std::span(&state, 1)}};
    load_shards(directory, groups);
    tensor::FlatShard expected = make(shapes(), at::kFloat, rank, world);
    test_shards::number(expected, shapes(), 0);
    EXPECT_TRUE(at::equal(parameters.buffer, expected.buffer)) << "rank " << rank;
    test_shards::number(expected, shapes(), 500'000);
    EXPECT_TRUE(at::equal(state.buffer, expected.buffer)) << "rank " << rank;
  }
}

tensor::FlatShard whole(const Shapes& shapes, at::ScalarType dtype, int, int) {
  return test_shards::whole(shapes, dtype);
}

TEST(Sharded, OneRanksFilesFillEveryLayout) {
  const test::TemporaryDirectory folder;
  save_numbered(folder.path(), whole, 1);
  expect_numbered(folder.path(), whole, 1);
  for (const int world : {2, 3, 7}) {
    expect_numbered(folder.path(), test_shards::part, world);
    expect_numbered(folder.path(), test_shards::columns, world);
  }
}

TEST(Sharded, ThreeRanksFilesFillTwoRanksShards) {
  const test::TemporaryDirectory folder;
  save_numbered(folder.path(), test_shards::part, 3);
  expect_numbered(folder.path(), test_shards::part, 3);
  expect_numbered(folder.path(), test_shards::part, 2);
  expect_numbered(folder.path(), test_shards::columns, 2);
}

TEST(Sharded, ColumnBoxesFillFlatRangesAndBack) {
  const test::TemporaryDirectory folder;
  save_numbered(folder.path(), test_shards::columns, 2);
  expect_numbered(folder.path(), test_shards::columns, 3);
  expect_numbered(folder.path(), test_shards::part, 3);
  expect_numbered(folder.path(), test_shards::columns, 2);
}

TEST(Sharded, SeveralBoxesOfATensorInOneFileFillEveryLayout) {
  const test::TemporaryDirectory folder;
  save_numbered(folder.path(), test_shards::fused, 2);
  expect_numbered(folder.path(), test_shards::fused, 2);
  expect_numbered(folder.path(), test_shards::fused, 3);
  expect_numbered(folder.path(), test_shards::part, 3);
  expect_numbered(folder.path(), whole, 1);
  EXPECT_EQ(ShardedFolder::open(folder.path()).tensors().size(), 2 * shapes().size());
}

TEST(Sharded, ReshardedTwiceIsTheSame) {
  const test::TemporaryDirectory first;
  const test::TemporaryDirectory second;
  save_numbered(first.path(), whole, 1);
  for (int rank = 0; rank < 3; ++rank) {
    tensor::FlatShard part = test_shards::part(shapes(), at::kFloat, rank, 3);
    const NamedShards group{"", std::span(&part, 1)};
    load_shards(first.path(), std::span(&group, 1));
    save_shards(second.path(), {"model", rank, 3}, std::span(&group, 1));
  }
  finish_shards(second.path(), {"model", 0, 3});
  for (int rank = 0; rank < 2; ++rank) {
    tensor::FlatShard part = test_shards::part(shapes(), at::kFloat, rank, 2);
    const NamedShards group{"", std::span(&part, 1)};
    load_shards(second.path(), std::span(&group, 1));
    tensor::FlatShard expected = test_shards::part(shapes(), at::kFloat, rank, 2);
    test_shards::number(expected, shapes(), 0);
    EXPECT_TRUE(at::equal(part.buffer, expected.buffer));
  }
}

TEST(Sharded, ValuesAreConvertedToTheBuffersDtype) {
  const test::TemporaryDirectory folder;
  save_numbered(folder.path(), whole, 1);
  tensor::FlatShard shard = test_shards::whole(shapes(), at::kDouble);
  const NamedShards group{"", std::span(&shard, 1)};
  load_shards(folder.path(), std::span(&group, 1));
  tensor::FlatShard expected = test_shards::whole(shapes(), at::kDouble);
  test_shards::number(expected, shapes(), 0);
  EXPECT_TRUE(at::equal(shard.buffer, expected.buffer));
}

TEST(Sharded, OneRanksFileHoldsTensorsInTheirShape) {
  const test::TemporaryDirectory folder;
  save_numbered(folder.path(), whole, 1);
  const SafetensorsFile file(folder.file("shard-00001-model-00001-of-00001.safetensors"));
  EXPECT_EQ(file.at("up.weight").shape, (std::vector<int64_t>{9, 4}));
  EXPECT_EQ(file.at("exp_avg.up.weight").shape, (std::vector<int64_t>{9, 4}));
}

TEST(Sharded, ReadsPiecesOfWholeTensors) {
  const test::TemporaryDirectory folder;
  save_numbered(folder.path(), test_shards::part, 3);
  const ShardedFolder opened = ShardedFolder::open(folder.path());
  at::Tensor out = at::zeros({40});
  opened.read("embed.weight", 10, out);
  EXPECT_TRUE(at::equal(out, at::arange(10, 50).to(at::kFloat)));
}

TEST(Sharded, ListsEveryTensorOfEveryGroupOnce) {
  const test::TemporaryDirectory folder;
  save_numbered(folder.path(), test_shards::part, 3);
  std::vector<std::string> names;
  for (const TensorInfo& tensor : ShardedFolder::open(folder.path()).tensors()) {
    names.push_back(tensor.name);
  }
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("embed.weight", "norm.weight", "up.weight", "empty",
                                            "exp_avg.embed.weight", "exp_avg.norm.weight",
                                            "exp_avg.up.weight", "exp_avg.empty"));
}

TEST(Sharded, DamagedTensorIsNamed) {
  const test::TemporaryDirectory folder;
  save_numbered(folder.path(), test_shards::part, 3);
  const std::string path = folder.file("shard-00001-model-00001-of-00001.safetensors");
  std::string bytes = read_file(path);
  const SafetensorsFile before(path);
  bytes[before.at("embed.weight").begin] ^= 1;
  write_file_atomic(path, bytes);
  const std::string expected = path + ": tensor 'embed.weight' is damaged: its checksum differs";
  for (const int world : {3, 2}) {  // the same layout, and one that needs a part of it
    tensor::FlatShard shard = test_shards::part(shapes(), at::kFloat, 0, world);
    const NamedShards group{"", std::span(&shard, 1)};
    EXPECT_EQ(test::error_of<InputError>([&] { load_shards(folder.path(), std::span(&group, 1)); }),
              expected);
  }
  const SafetensorsFile damaged(path);
  EXPECT_EQ(written_checksums(damaged), written_checksums(before));
  EXPECT_NE(
      damaged.checksum(damaged.at("embed.weight")),
      written_checksums(
          damaged)[static_cast<size_t>(damaged.find("embed.weight") - damaged.tensors().data())]);
}

TEST(Sharded, RangeThatNoFileHoldsIsNamed) {
  const test::TemporaryDirectory folder;
  tensor::FlatShard first = test_shards::part(shapes(), at::kFloat, 0, 3);
  const NamedShards saved{"", std::span(&first, 1)};
  save_shards(folder.path(), {"model", 0, 1}, std::span(&saved, 1));
  finish_shards(folder.path(), {"model", 0, 1});
  tensor::FlatShard wanted = test_shards::whole({shapes()[0]}, at::kFloat);
  const NamedShards group{"", std::span(&wanted, 1)};
  EXPECT_EQ(
      test::error_of<InputError>([&] { load_shards(folder.path(), std::span(&group, 1)); }),
      folder.path() +
          ": elements [36, 66) of this rank's part of 'embed.weight' are in none of its files");
}

TEST(Sharded, MissingAndMisshapenTensorsAreNamed) {
  const test::TemporaryDirectory folder;
  save_numbered(folder.path(), whole, 1);
  tensor::FlatShard wanted =
      test_shards::whole({{"norm.weight", {7}}, {"other.weight", {2}}}, at::kFloat);
  const NamedShards group{"", std::span(&wanted, 1)};
  EXPECT_EQ(test::error_of<InputError>([&] { load_shards(folder.path(), std::span(&group, 1)); }),
            folder.path() +
                " does not fit this model:\n  missing (1): other.weight\n  of another shape (1): "
                "norm.weight is [6] in the checkpoint and [7] here");
}

TEST(Sharded, MissingFileIsNamed) {
  const test::TemporaryDirectory folder;
  save_numbered(folder.path(), test_shards::part, 2);
  const std::string path = folder.file("shard-00002-model-00001-of-00001.safetensors");
  remove_tree(path);
  EXPECT_EQ(test::error_of<InputError>([&] { ShardedFolder::open(folder.path()); }),
            path + ": missing from the checkpoint");
}

TEST(Sharded, MalformedDescriptionIsRefused) {
  const test::TemporaryDirectory folder;
  const std::vector<std::pair<std::string, at::Tensor>> tensors = {{"x", at::zeros({4})}};
  const ShardFile name{"model", 0, 1};
  const std::string good = R"("offset":[0],"box":[4],"flat":[0,4],"xxh3":"0000000000000000"})";
  for (const std::string& record :
       {std::string("{}"), R"({"global":[3],)" + good, R"({"global":[4,1],)" + good,
        std::string(R"({"global":[4],"offset":[0],"box":[4],"flat":[2,4],)"
                    R"("xxh3":"0000000000000000"})"),
        std::string(R"({"global":[9223372036854775807,4],"offset":[0,0],"box":[1,4],)"
                    R"("flat":[0,4],"xxh3":"0000000000000000"})")}) {
    write_safetensors(folder.file(name.name()), tensors,
                      {{"automodel.shards", "{\"x\":" + record + "}"}});
    finish_shards(folder.path(), name);
    EXPECT_EQ(
        test::error_of<InputError>([&] { ShardedFolder::open(folder.path()); }),
        folder.file(name.name()) + ": tensor 'x': automodel.shards does not describe it rightly")
        << record;
  }
}

TEST(Sharded, UpstreamsPicklesAreRefused) {
  const test::TemporaryDirectory folder;
  folder.write("__0_0.distcp", "x");
  EXPECT_EQ(test::error_of<InputError>([&] { ShardedFolder::open(folder.path()); }),
            folder.path() +
                ": written by NeMo AutoModel as torch pickles (__0_0.distcp), which are never "
                "loaded because they can run code");
}

}  // namespace
}  // namespace automodel::checkpoint
