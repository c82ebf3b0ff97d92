#include "checkpoint/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/error.h"
#include "core/file.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"

namespace automodel::checkpoint {
namespace {

/// A file with this header (not padded), `data_bytes` zeros behind it.
std::string file_bytes(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\0');
}

/// The error of a file's bytes, "" when they are fine.
std::string error_of(const std::string& bytes) {
  try {
    parse_safetensors_header(std::as_bytes(std::span(bytes)), bytes.size(), "x.safetensors");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string error_of(const std::string& header, size_t data_bytes) {
  return error_of(file_bytes(header, data_bytes));
}

TEST(SafetensorsHeader, GoodFileIsRead) {
  const std::string bytes = file_bytes(
      R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
      R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},"__metadata__":{"k":"v"}} )",
      12);
  const SafetensorsHeader header =
      parse_safetensors_header(std::as_bytes(std::span(bytes)), bytes.size(), "x");
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, at::kBFloat16);
  EXPECT_EQ(header.tensors[1].shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(header.tensors[1].end, bytes.size());
  EXPECT_EQ(header.metadata, (Metadata{{"k", "v"}}));
}

TEST(SafetensorsHeader, FileOfFewBytesIsRefused) {
  EXPECT_EQ(error_of("abc"), "x.safetensors: not a safetensors file: 3 bytes are too few");
}

TEST(SafetensorsHeader, HeaderLongerThanFileIsRefused) {
  std::string bytes = file_bytes("{}", 0);
  bytes[0] = 100;
  EXPECT_EQ(error_of(bytes),
            "x.safetensors: not a safetensors file, or a truncated one: a header of 100 bytes does "
            "not fit a file of 10");
  std::memset(bytes.data(), 0xff, 8);
  EXPECT_EQ(error_of(bytes),
            "x.safetensors: not a safetensors file, or a truncated one: a header of "
            "18446744073709551615 bytes does not fit a file of 10");
}

TEST(SafetensorsHeader, HeaderThatIsNoJsonObjectIsRefused) {
  EXPECT_EQ(error_of("[]", 0), "x.safetensors: the header is an array, not an object");
  EXPECT_THAT(error_of("{\"a\":", 0), testing::StartsWith("x.safetensors: header: not valid JSON"));
}

TEST(SafetensorsHeader, UnknownDtypeIsRefused) {
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F31","shape":[],"data_offsets":[0,4]}})", 4),
            "x.safetensors: tensor 'a': unknown dtype 'F31'");
}

TEST(SafetensorsHeader, MissingPartsAreRefused) {
  EXPECT_EQ(error_of(R"({"a":{"shape":[],"data_offsets":[0,4]}})", 4),
            "x.safetensors: tensor 'a': has no dtype");
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4),
            "x.safetensors: tensor 'a': has no list shape");
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4),
            "x.safetensors: tensor 'a': data_offsets has 1 numbers, not 2");
  EXPECT_EQ(error_of(R"({"a":7})", 4), "x.safetensors: tensor 'a': is an integer, not an object");
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4),
            "x.safetensors: tensor 'a': shape holds a number, not an integer");
}

TEST(SafetensorsHeader, NegativeAndHugeShapesAreRefused) {
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
            "x.safetensors: tensor 'a': shape holds a negative number, -1");
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],)"
                     R"("data_offsets":[0,4]}})",
                     4),
            "x.safetensors: tensor 'a': shape [4294967296, 4294967296] is too large");
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904],)"
                     R"("data_offsets":[0,4]}})",
                     4),
            "x.safetensors: tensor 'a': shape [4611686018427387904] is too large");
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[0,4611686018427387904,8],)"
                     R"("data_offsets":[0,0]}})",
                     0),
            "x.safetensors: tensor 'a': shape [0, 4611686018427387904, 8] is too large");
}

TEST(SafetensorsHeader, ReversedOffsetsAreRefused) {
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
            "x.safetensors: tensor 'a': data_offsets 4, 0 are reversed");
}

TEST(SafetensorsHeader, WrongByteCountIsRefused) {
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
            "x.safetensors: tensor 'a': holds 8 bytes, but shape [3] of F32 takes 12");
}

TEST(SafetensorsHeader, OverlappingTensorsAreRefused) {
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                     R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                     8),
            "x.safetensors: tensor 'b' overlaps 'a'");
}

TEST(SafetensorsHeader, BytesWithoutTensorAreRefused) {
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
            "x.safetensors: tensor 'a': 4 bytes before it belong to no tensor");
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 6),
            "x.safetensors: 2 bytes after the last tensor belong to no tensor");
}

TEST(SafetensorsHeader, TruncatedDataIsRefused) {
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 5),
            "x.safetensors: tensor 'a' ends at byte 8 of the data, but only 5 are there; the file "
            "is truncated");
}

TEST(SafetensorsHeader, NameThatOccursTwiceIsRefused) {
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                     R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                     4),
            "x.safetensors: tensor 'a' occurs twice in the header");
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                     R"("\u0061":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                     4),
            "x.safetensors: a tensor occurs twice in the header");
}

TEST(SafetensorsHeader, MetadataOfNumbersIsRefused) {
  EXPECT_EQ(error_of(R"({"__metadata__":{"k":1}})", 0),
            "x.safetensors: __metadata__: 'k' is an integer, not a string");
}

TEST(SafetensorsHeader, IsAlignedToEightBytes) {
  for (const char* name : {"a", "ab", "abc", "abcdefgh"}) {
    const TensorEntry entry{.name = name, .dtype = at::kFloat, .shape = {1}};
    EXPECT_EQ(format_safetensors_header(std::span(&entry, 1), {}).size() % 8, 0u);
  }
}

TEST(SafetensorsFile, PythonsFileIsReadEqual) {
  const SafetensorsFile file(test::source_file("tests/checkpoint/data/mixed.safetensors"));
  EXPECT_EQ(file.metadata("origin"), "python");
  EXPECT_TRUE(at::equal(file.read("a.f32"), at::tensor({1.5f, -2.0f, 0.25f, 3.0f}).view({2, 2})));
  EXPECT_TRUE(at::equal(file.read("b.bf16"), at::tensor({1.0, -0.5, 2.0}).to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(file.read("c.f16"), at::tensor({0.5, 65504.0}).to(at::kHalf)));
  EXPECT_TRUE(at::equal(file.read("d.i64"), at::tensor({int64_t{-1}, int64_t{1} << 40})));
  EXPECT_TRUE(at::equal(file.read("e.bool"), at::tensor({1, 0, 1}).to(at::kBool)));
  EXPECT_EQ(file.read("f.scalar").sizes(), at::IntArrayRef({}));
  EXPECT_EQ(file.read("f.scalar").item<double>(), 7.0);
  EXPECT_EQ(file.read("g.empty").sizes(), at::IntArrayRef({0, 3}));
}

TEST(SafetensorsFile, AbsentTensorIsNamed) {
  const std::string path = test::source_file("tests/checkpoint/data/mixed.safetensors");
  try {
    SafetensorsFile(path).read("z");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()), path + ": no tensor 'z' in it");
  }
}

TEST(SafetensorsFile, AbsentAndEmptyFilesAreNamed) {
  const test::TemporaryDirectory folder;
  try {
    const SafetensorsFile file(folder.file("none.safetensors"));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()),
              "cannot read " + folder.file("none.safetensors") + ": No such file or directory");
  }
  const std::string empty = folder.write("empty.safetensors", "");
  try {
    const SafetensorsFile file(empty);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()), empty + ": not a safetensors file: 0 bytes are too few");
  }
}

class RoundTrip : public testing::TestWithParam<at::ScalarType> {};

TEST_P(RoundTrip, ValuesAndShardsSurvive) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.file("x.safetensors");
  const at::Tensor values = (at::arange(-100, 7 * 9 * 5 - 100)).view({7, 9, 5}).to(GetParam());
  const std::vector<std::pair<std::string, at::Tensor>> tensors = {{"values", values},
                                                                   {"scalar", at::tensor(3.0f)}};
  const FileRecord record = write_safetensors(path, tensors, {{"format", "pt"}});
  EXPECT_EQ(record.num_bytes, file_size(path));
  EXPECT_EQ(record.checksum, checksum_of_file(path));

  const SafetensorsFile file(path);
  EXPECT_TRUE(at::equal(file.read("values"), values));
  EXPECT_EQ(file.metadata("format"), "pt");
  // A box of columns, and of it a flat range; converted on the way and not.
  const tensor::ShardSpec spec{{7, 9, 5}, {2, 3, 0}, {4, 5, 5}, 13, 77};
  const at::Tensor expected =
      values.narrow(0, 2, 4).narrow(1, 3, 5).reshape({-1}).narrow(0, 13, 64);
  for (const at::ScalarType dtype : {GetParam(), at::kFloat, at::kDouble}) {
    at::Tensor out = at::zeros({64}, at::TensorOptions().dtype(dtype));
    file.read_shard(file.at("values"), spec, out);
    EXPECT_TRUE(at::equal(out, expected.to(dtype)));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RoundTrip, testing::Values(at::kFloat, at::kBFloat16, at::kHalf));

TEST(SafetensorsFile, LongTensorsAreConvertedPieceByPiece) {
  const test::TemporaryDirectory folder;
  const at::Tensor values = at::arange(100'003).to(at::kFloat);
  const std::vector<std::pair<std::string, at::Tensor>> tensors = {{"x", values}};
  write_safetensors(folder.file("x.safetensors"), tensors, {});
  const SafetensorsFile file(folder.file("x.safetensors"));
  at::Tensor out = at::zeros({100'000}, at::TensorOptions().dtype(at::kDouble));
  file.read_elements(file.at("x"), 3, out);
  EXPECT_TRUE(at::equal(out, values.narrow(0, 3, 100'000).to(at::kDouble)));
}

TEST(SafetensorsWriter, SameInputGivesSameBytes) {
  const test::TemporaryDirectory folder;
  const std::vector<std::pair<std::string, at::Tensor>> tensors = {{"x", at::arange(5)}};
  write_safetensors(folder.file("a"), tensors, {{"k", "v"}});
  write_safetensors(folder.file("b"), tensors, {{"k", "v"}});
  EXPECT_EQ(read_file(folder.file("a")), read_file(folder.file("b")));
}

TEST(SafetensorsWriter, ConvertsToTheDeclaredDtype) {
  const test::TemporaryDirectory folder;
  const TensorInfo info{"x", at::kBFloat16, {2, 3}};
  SafetensorsWriter writer(folder.file("x"), std::span(&info, 1), {});
  const at::Tensor values = at::arange(6).to(at::kFloat);
  writer.write(values.narrow(0, 0, 4));
  writer.write(values.narrow(0, 4, 2));
  writer.finish();
  EXPECT_TRUE(at::equal(SafetensorsFile(folder.file("x")).read("x"),
                        values.view({2, 3}).to(at::kBFloat16)));
}

TEST(SafetensorsWriter, UnfinishedFileLeavesNothing) {
  const test::TemporaryDirectory folder;
  {
    const TensorInfo info{"x", at::kFloat, {2}};
    SafetensorsWriter writer(folder.file("x"), std::span(&info, 1), {});
    writer.write(at::zeros({1}));
  }
  EXPECT_TRUE(list_directory(folder.path()).empty());
}

TEST(SafetensorsWriter, FailedWriteLeavesTheOldFileAndIsNamed) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.write("x.safetensors", "old");
  std::string text;
  {
    const test::FileSizeLimit limit(4096);
    try {
      const std::vector<std::pair<std::string, at::Tensor>> tensors = {{"x", at::zeros({10'000})}};
      write_safetensors(path, tensors, {});
    } catch (const InputError& error) {
      text = error.what();
    }
  }
  EXPECT_EQ(text, "cannot write " + path + ": File too large");
  EXPECT_EQ(list_directory(folder.path()), std::vector<std::string>{"x.safetensors"});
  EXPECT_EQ(read_file(path), "old");
}

TEST(Checksum, IsXxh3) {
  EXPECT_EQ(format_checksum(checksum_of("")), "2d06800538d394c2");
  EXPECT_EQ(parse_checksum("2d06800538d394c2"), checksum_of(""));
  EXPECT_EQ(parse_checksum("2d06"), std::nullopt);
}

}  // namespace
}  // namespace automodel::checkpoint
