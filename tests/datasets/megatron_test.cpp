#include <gtest/gtest.h>

#include <cstring>

#include "core/file.h"
#include "core/text.h"
#include "datasets/encoders.h"
#include "datasets/loading/sampler.h"
#include "datasets/pretraining/megatron_pretraining.h"
#include "datasets/pretraining/token_file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using automodel::test::source_file;
using automodel::test::TemporaryDirectory;

std::string token_file(const std::string& name) {
  return source_file("tests/datasets/data/megatron/" + name);
}

std::vector<std::string> entries_of(const Json& list) {
  std::vector<std::string> entries;
  for (const Json& entry : list.as_array()) {
    const std::string& text = entry.as_string();
    entries.push_back(parse_double(text) ? text : token_file(text));
  }
  return entries;
}

MegatronPretrainingConfig config_of(const Json& golden) {
  MegatronPretrainingConfig config;
  const Json& paths = golden.at("paths");
  if (paths.is_array()) {
    config.blend = MegatronBlend::parse(entries_of(paths));
  } else {
    for (const auto& [part, list] : paths.as_object()) {
      set_blend_of_part(part, entries_of(list), config);
    }
  }
  config.split = golden.at("split").as_string();
  config.seq_length = golden.at("seq_length").as_int();
  config.seed = static_cast<uint32_t>(golden.at("seed").as_int());
  const std::string& part = golden.at("part").as_string();
  config.part = part == "train"        ? MegatronSplit::kTrain
                : part == "validation" ? MegatronSplit::kValidation
                                       : MegatronSplit::kTest;
  if (const Json* wanted = golden.find("num_samples")) {
    config.num_samples[static_cast<size_t>(config.part)] = wanted->as_int();
  }
  return config;
}

TEST(MegatronTest, DrawsTheSamplesOfAutoModel) {
  const Json goldens = Json::parse_file(token_file("samples.json"));
  for (const Json& golden : goldens.as_array()) {
    Json described = golden;
    described.erase("input_ids");
    described.erase("labels");
    SCOPED_TRACE(described.dump());
    datasets::test::ByteEncoder encoder;
    encoder.pad = golden.at("pad").as_int();
    encoder.eos = golden.at("eos").as_int();
    TrainingSchedule schedule{.max_steps = std::nullopt, .global_batch_size = 4};
    if (const Json* steps = golden.find("max_steps")) schedule.max_steps = steps->as_int();
    const MegatronPretraining dataset(config_of(golden), schedule, encoder);
    const Json::Array& inputs = golden.at("input_ids").as_array();
    ASSERT_EQ(dataset.size(), std::ssize(inputs));
    for (int64_t i = 0; i < dataset.size(); ++i) {
      const auto place = static_cast<size_t>(i);
      EXPECT_EQ(dataset.at(i).input_ids, datasets::test::integers(inputs[place])) << i;
      EXPECT_EQ(dataset.at(i).labels,
                datasets::test::integers(golden.at("labels").as_array()[place]))
          << i;
    }
  }
  EXPECT_GE(goldens.size(), 15U);
}

TEST(MegatronTest, DealsRowsAsAutoModelsSamplers) {
  const Json goldens = Json::parse_file(token_file("dealt.json"));
  for (const Json& golden : goldens.as_array()) {
    SCOPED_TRACE(golden.dump());
    const std::string& kind = golden.at("kind").as_string();
    const int64_t batch_size = golden.at("batch_size").as_int();
    const Json::Array& ranks = golden.at("ranks").as_array();
    const std::vector<int64_t> lengths =
        kind == "length" ? datasets::test::integers(golden.at("lengths")) : std::vector<int64_t>();
    SamplerOptions options;
    options.num_rows = kind == "length" ? std::ssize(lengths) : golden.at("num_rows").as_int();
    options.num_replicas = static_cast<int>(ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      options.rank = static_cast<int>(rank);
      std::unique_ptr<RowSampler> sampler;
      if (kind == "length") {
        sampler = std::make_unique<LengthGroupedSampler>(lengths, batch_size, options);
      } else {
        const auto order = kind == "single" ? MegatronOrder::kSingle : MegatronOrder::kCyclic;
        sampler = std::make_unique<MegatronSampler>(order, batch_size, options);
      }
      const std::vector<int64_t> expected = datasets::test::integers(ranks[rank]);
      const int64_t epoch = golden.at("epoch").as_int();
      EXPECT_EQ(sampler->size(), std::ssize(expected));
      EXPECT_EQ(sampler->rows(epoch, 0), expected);
      // From the middle of an epoch on.
      EXPECT_EQ(sampler->rows(epoch, batch_size),
                std::vector(expected.begin() + batch_size, expected.end()));
    }
  }
}

TEST(MegatronTest, ASequentialPositionHoldsForOtherNumbersOfRanks) {
  SamplerOptions options{.num_rows = 24, .num_replicas = 1};
  const MegatronSampler alone(MegatronOrder::kSingle, 2, options);
  options.num_replicas = 2;
  options.rank = 1;
  const MegatronSampler second(MegatronOrder::kSingle, 2, options);
  // Eight samples were taken by one rank, or four by each of two.
  EXPECT_EQ(alone.rows(0, 8)[2], 10);
  EXPECT_EQ(second.rows(0, 4)[0], 10);
}

TEST(MegatronTest, WantsAsManySamplesAsTheScheduleTakes) {
  MegatronPretrainingConfig config;
  config.blend = MegatronBlend{{token_file("a")}};
  const TrainingSchedule schedule{.max_steps = 100, .global_batch_size = 8, .val_every_steps = 30};
  EXPECT_EQ(wanted_samples(config, schedule), 800);
  EXPECT_EQ(wanted_samples(config, {}), std::nullopt);
  config.num_samples[0] = 1000;
  EXPECT_EQ(wanted_samples(config, schedule), 1000);
  config.part = MegatronSplit::kValidation;
  EXPECT_EQ(wanted_samples(config, schedule), 32);  // 125 steps, 4 validations of a batch
  config.limit_val_batches = 3;
  EXPECT_EQ(wanted_samples(config, schedule), 96);
  config.limit_val_batches = std::nullopt;
  EXPECT_EQ(wanted_samples(config, schedule), std::nullopt);
  config.num_samples[1] = 5;
  EXPECT_EQ(wanted_samples(config, schedule), 5);
  config.num_samples[0] = 700;
  EXPECT_EQ(error_of<UserError>([&] { wanted_samples(config, schedule); }),
            "num_train_samples 700 is less than max_steps * global_batch_size, 800");
}

TEST(MegatronTest, PathsAreAListAGlobOrAFile) {
  const TemporaryDirectory directory;
  MegatronPretrainingConfig config;
  read_blend_path(token_file("*.idx"), config);
  EXPECT_EQ(config.blend->prefixes,
            (std::vector<std::string>{token_file("a"), token_file("b"), token_file("c")}));
  read_blend_path(directory.write("blend.json", R"(["30", "x", 70, "y"])"), config);
  EXPECT_EQ(config.blend->prefixes, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(config.blend->weights, (std::vector<double>{30, 70}));
  MegatronPretrainingConfig parts;
  read_blend_path(directory.write("parts.json", R"({"train": ["1", "x", "2", "y"], "dev": "z"})"),
                  parts);
  EXPECT_EQ(parts.blend_per_split[0]->weights, (std::vector<double>{1, 2}));
  EXPECT_EQ(parts.blend_per_split[1]->prefixes, std::vector<std::string>{"z"});
  EXPECT_EQ(
      error_of<UserError>([] {
        MegatronBlend::parse({"30", "a", "x", "b"});
      }),
      "paths: expected prefixes, or weights and prefixes in turn: [30, /data/a, 70, /data/b]");
  EXPECT_EQ(error_of<UserError>([] {
              MegatronBlend::parse({"0", "a", "1", "b"});
            }),
            "paths: weight 0 is not above 0");
  EXPECT_EQ(error_of<UserError>([&] { set_blend_of_part("tests", {"a"}, config); }),
            "paths: 'tests' is none of train, validation and test");
  EXPECT_EQ(error_of<InputError>([&] { read_blend_path("/nowhere/*.bin", config); }),
            "paths: no file is named like '/nowhere/*.bin'");
}

TEST(MegatronTest, PartsThatHaveNothingAreRefused) {
  MegatronPretrainingConfig config;
  config.blend = MegatronBlend{{token_file("a")}};
  config.split = "99,1,0";
  config.part = MegatronSplit::kTest;
  EXPECT_EQ(error_of<UserError>([&] { check(config); }),
            "split '99,1,0' leaves nothing to test, which splits_to_build asks for");
  config.split = "99,x";
  EXPECT_EQ(error_of<UserError>([&] { check(config); }),
            "split '99,x': expected up to three numbers at least 0, the shares of training, "
            "validation and test, such as 900,50,50");
  config.blend = std::nullopt;
  EXPECT_EQ(error_of<UserError>([&] { check(config); }),
            "paths has no test, which splits_to_build asks for");
  config.blend = MegatronBlend{{token_file("a"), token_file("b")}, std::vector<double>{1, 1}};
  config.split = "1";
  config.part = MegatronSplit::kTrain;
  EXPECT_EQ(
      error_of<UserError>([&] { MegatronPretraining(config, {}, datasets::test::ByteEncoder()); }),
      "weights in paths need a number of samples: step_scheduler.max_steps, "
      "num_train_samples, num_val_samples or num_test_samples");
  config.blend = MegatronBlend{{token_file("a")}};
  config.seq_length = 4000;
  EXPECT_EQ(
      error_of<InputError>([&] { MegatronPretraining(config, {}, datasets::test::ByteEncoder()); }),
      token_file("a") + ": 60 documents with 1282 tokens do not make one sample of 4000 + 1");
}

TEST(TokenFileTest, FilesThatAreNoneAreNamed) {
  const TemporaryDirectory directory;
  const std::string index = read_file(token_file("a.idx"));
  const std::string tokens = read_file(token_file("a.bin"));
  const auto error = [&](const std::string& idx, const std::string& bin) {
    directory.write("x.idx", idx);
    directory.write("x.bin", bin);
    return replace_all(error_of<InputError>([&] { TokenFile file(directory.file("x")); }),
                       directory.path() + "/", "");
  };
  EXPECT_EQ(error("", tokens), "x.idx: this is no index of tokenized documents (MMIDIDX)");
  EXPECT_EQ(error("MMIDIDX" + index.substr(7, 3), tokens),
            "x.idx: this is no index of tokenized documents (MMIDIDX)");
  std::string changed = index;
  changed[9] = 2;
  EXPECT_EQ(error(changed, tokens), "x.idx: version 2 of the format is not known; 1 is");
  changed = index;
  changed[17] = 7;
  EXPECT_EQ(error(changed, tokens),
            "x.idx: dtype code 7 is none of tokens: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 "
            "uint16");
  EXPECT_EQ(error(index.substr(0, index.size() - 9), tokens),
            "x.idx: 1233 bytes are too few for 60 sequences and 61 documents: the file is cut off");
  changed = index;
  std::memset(changed.data() + 18, 0xff, 8);
  EXPECT_NE(error(changed, tokens).find("too few for 18446744073709551615 sequences"),
            std::string::npos);
  EXPECT_NE(
      error(index, tokens.substr(0, tokens.size() - 2)).find("does not lie in x.bin of 2562 bytes"),
      std::string::npos);
  changed = index;
  changed[34 + 3] = static_cast<char>(0x80);  // a negative length
  EXPECT_NE(error(changed, tokens).find("x.idx: sequence 0 of -"), std::string::npos);
  EXPECT_NE(error_of<InputError>([&] { TokenFile file(directory.file("none")); }).find("none.idx"),
            std::string::npos);
}

TEST(TokenFileTest, OtherBytesAreAnotherFingerprint) {
  const TemporaryDirectory directory;
  std::string tokens = read_file(token_file("a.bin"));
  directory.write("x.idx", read_file(token_file("a.idx")));
  directory.write("x.bin", tokens);
  const uint64_t before = TokenFile(directory.file("x")).files()[1].checksum;
  tokens[100] = static_cast<char>(tokens[100] ^ 1);
  directory.write("x.bin", tokens);
  EXPECT_NE(TokenFile(directory.file("x")).files()[1].checksum, before);
}

}  // namespace
}  // namespace automodel::datasets
