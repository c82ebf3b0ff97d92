#include "datasets/pretraining/nanogpt.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "core/file.h"
#include "core/text.h"
#include "datasets/encoders.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using automodel::test::source_file;
using automodel::test::TemporaryDirectory;
using Passes = NanogptDataset::Passes;
using Tokens = std::vector<int64_t>;

std::string bin_file(const std::string& name) {
  return source_file("tests/datasets/data/nanogpt/" + name);
}

NanogptDatasetConfig config_of(const Json& golden) {
  NanogptDatasetConfig config;
  for (const Json& name : golden.at("files").as_array()) {
    config.file_pattern.push_back(bin_file(name.as_string()));
  }
  config.seq_len = golden.at("seq_len").as_int();
  if (const Json* bos = golden.find("bos_token")) config.bos_token = bos->as_int();
  config.align_to_bos = golden.find("align_to_bos") != nullptr;
  config.shuffle_files = golden.find("shuffle_files") != nullptr;
  return config;
}

LoaderContext context_of(int num_replicas, int rank, int64_t batch_size) {
  LoaderContext context;
  context.num_replicas = num_replicas;
  context.rank = rank;
  context.local_batch_size = batch_size;
  context.vocab_size = 300;
  return context;
}

/// The sequences of a batch, each with its last label behind it.
std::vector<Tokens> sequences_of(const tensor::Batch& batch) {
  std::vector<Tokens> sequences;
  const int64_t length = batch.input_ids.size(1);
  const int64_t* ids = batch.input_ids.const_data_ptr<int64_t>();
  const int64_t* labels = batch.labels.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < batch.input_ids.size(0); ++row) {
    Tokens tokens(ids + row * length, ids + (row + 1) * length);
    const Tokens targets(labels + row * length, labels + (row + 1) * length);
    EXPECT_EQ(Tokens(tokens.begin() + 1, tokens.end()), Tokens(targets.begin(), targets.end() - 1));
    tokens.push_back(targets.back());
    sequences.push_back(std::move(tokens));
  }
  return sequences;
}

/// Ranks that read the same data, side by side.
class Ranks final {
 public:
  Ranks(const NanogptDatasetConfig& config, int num_ranks, int64_t batch_size,
        Passes passes = Passes::kEndless) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      ranks_.push_back(std::make_unique<NanogptDataset>(
          config, DataloaderConfig{}, context_of(num_ranks, rank, batch_size), passes));
    }
  }

  /// The next samples of all ranks in the order of the data; none at the end.
  std::vector<Tokens> next() {
    std::vector<std::vector<Tokens>> batches;
    for (const auto& rank : ranks_) {
      const auto batch = rank->next();
      batches.push_back(batch ? sequences_of(*batch) : std::vector<Tokens>());
    }
    std::vector<Tokens> samples;
    for (size_t row = 0; row < batches[0].size(); ++row) {
      for (const auto& batch : batches) samples.push_back(batch.at(row));
    }
    return samples;
  }

  std::vector<Tokens> take(size_t num_samples) {
    std::vector<Tokens> all;
    while (all.size() < num_samples) {
      std::vector<Tokens> samples = next();
      if (samples.empty()) break;
      all.insert(all.end(), samples.begin(), samples.end());
    }
    return all;
  }

  Json state() const {
    for (const auto& rank : ranks_) EXPECT_EQ(rank->state(), ranks_[0]->state());
    return Json::parse(ranks_[0]->state().dump(), "position");
  }
  void load_state(const Json& state) {
    for (const auto& rank : ranks_) rank->load_state(state);
  }
  NanogptDataset& first() { return *ranks_[0]; }

 private:
  std::vector<std::unique_ptr<NanogptDataset>> ranks_;
};

std::vector<Tokens> samples_of(const Json& golden) {
  std::vector<Tokens> samples;
  for (const Json& sample : golden.at("samples").as_array()) {
    samples.push_back(datasets::test::integers(sample));
  }
  return samples;
}

/// The bytes of a file with this header and these 16-bit tokens.
std::string bytes_of(const std::vector<int32_t>& header, const std::vector<uint16_t>& tokens) {
  std::string bytes(256 * 4, '\0');
  std::memcpy(bytes.data(), header.data(), 4 * header.size());
  bytes.append(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size());
  return bytes;
}

constexpr int32_t kMagic = 278895051;

std::string refusal_of(const NanogptDatasetConfig& config) {
  return error_of<InputError>([&] { check(config); });
}

NanogptDatasetConfig reading(const std::string& path, int64_t seq_len = 3) {
  NanogptDatasetConfig config;
  config.file_pattern = {path};
  config.seq_len = seq_len;
  return config;
}

TEST(NanogptTest, DrawsTheSamplesOfAutoModelOnAnyNumberOfRanks) {
  const Json goldens = Json::parse_file(bin_file("samples.json"));
  ASSERT_EQ(goldens.size(), 9U);
  for (const Json& golden : goldens.as_array()) {
    const std::vector<Tokens> expected = samples_of(golden);
    const NanogptDatasetConfig config = config_of(golden);
    SCOPED_TRACE(cat(golden.at("files").dump(), " seq_len ", config.seq_len));
    const std::pair<int, int> meshes[] = {{1, 1}, {1, 3}, {2, 1}, {2, 2}, {4, 1}};
    for (const auto& [num_ranks, batch_size] : meshes) {
      SCOPED_TRACE(cat(num_ranks, " ranks, batches of ", batch_size));
      std::vector<Tokens> samples = Ranks(config, num_ranks, batch_size).take(expected.size());
      ASSERT_GE(samples.size(), expected.size());
      samples.resize(expected.size());
      EXPECT_EQ(samples, expected);
    }
  }
}

TEST(NanogptTest, ContinuesAtTheSameTokenOnAnyNumberOfRanks) {
  const Json goldens = Json::parse_file(bin_file("samples.json"));
  for (const Json& golden : goldens.as_array()) {
    const std::vector<Tokens> expected = samples_of(golden);
    const NanogptDatasetConfig config = config_of(golden);
    SCOPED_TRACE(cat(golden.at("files").dump(), " seq_len ", config.seq_len));
    for (const size_t num_taken :
         {size_t{4}, expected.size() / 8 * 4, expected.size() / 4 * 4 - 4}) {
      Ranks before(config, 2, 2);
      before.take(num_taken);
      const Json state = before.state();
      for (const int num_ranks : {1, 2, 4}) {
        SCOPED_TRACE(cat("after ", num_taken, " on ", num_ranks, " ranks"));
        Ranks after(config, num_ranks, 1);
        after.take(3);  // what a stream was at before does not matter
        after.load_state(state);
        std::vector<Tokens> rest = after.take(expected.size() - num_taken);
        rest.resize(expected.size() - num_taken);
        EXPECT_EQ(rest, std::vector(expected.begin() + static_cast<std::ptrdiff_t>(num_taken),
                                    expected.end()));
      }
    }
  }
}

TEST(NanogptTest, AValidationIsOnePass) {
  NanogptDatasetConfig config = reading(bin_file("*.bin"), 16);
  const int64_t num_samples = 301 / 17 + 187 / 17 + 64 / 17 + 250 / 17;
  ASSERT_EQ(num_samples, 45);
  Ranks alone(config, 1, 2, Passes::kOne);
  EXPECT_EQ(alone.first().size(), 23);
  const std::vector<Tokens> all = alone.take(1000);
  EXPECT_EQ(std::ssize(all), num_samples);
  EXPECT_FALSE(alone.first().next().has_value());
  alone.first().rewind();
  EXPECT_EQ(alone.take(1000), all);

  Ranks four(config, 4, 2, Passes::kOne);
  EXPECT_EQ(four.first().size(), 6);
  EXPECT_EQ(four.take(1000), std::vector(all.begin(), all.begin() + 44));
  EXPECT_EQ(Ranks(config, 1, 2).first().size(), std::nullopt);

  config.align_to_bos = true;
  config.bos_token = 1;
  Ranks aligned(config, 1, 2, Passes::kOne);
  const std::vector<Tokens> begun = aligned.take(1000);
  EXPECT_EQ(aligned.first().size(), (std::ssize(begun) + 1) / 2);
  EXPECT_LT(std::ssize(begun), num_samples);
  for (const Tokens& sample : begun) EXPECT_EQ(sample[0], 1);

  EXPECT_EQ(error_of<InputError>([] { Ranks(reading(bin_file("c.bin"), 40), 2, 1, Passes::kOne); }),
            "the dataset: 1 samples are fewer than the 2 data-parallel ranks");
}

TEST(NanogptTest, ALastBatchThatIsNotFullIsLeftOutWhereAsked) {
  DataloaderConfig loader;
  loader.drop_last = true;
  loader.batch_size = 2;
  NanogptDataset dataset(reading(bin_file("c.bin"), 20), loader, context_of(1, 0, 8), Passes::kOne);
  EXPECT_EQ(dataset.size(), 1);
  EXPECT_EQ(dataset.next()->num_sequences(), 2);
  EXPECT_FALSE(dataset.next().has_value());
}

TEST(NanogptTest, FilesOfAListKeepTheirOrder) {
  NanogptDatasetConfig config = reading(bin_file("c.bin"), 63);
  config.file_pattern.push_back(bin_file("[ab].bin"));
  const Tokens first = Ranks(config, 1, 1).take(1)[0];
  EXPECT_EQ(first, Ranks(reading(bin_file("c.bin"), 63), 1, 1).take(1)[0]);
  EXPECT_EQ(Ranks(config, 1, 1).take(2)[1], Ranks(reading(bin_file("a.bin"), 63), 1, 1).take(1)[0]);
}

TEST(NanogptTest, FilesThatAreNotWhatTheySayAreRefused) {
  const TemporaryDirectory folder;
  const std::vector<uint16_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto refusal = [&](const std::string& bytes) {
    const std::string path = folder.write("x.bin", bytes);
    return replace_all(refusal_of(reading(path)), path, "x.bin");
  };
  EXPECT_EQ(refusal(bytes_of({kMagic, 1, 8, 2}, tokens)), "no error");
  EXPECT_EQ(refusal(bytes_of({20240520, 1, 8, 77}, tokens)), "no error");
  EXPECT_EQ(refusal(bytes_of({7, 1, 8, 2}, tokens)),
            "x.bin: this is no file of nanoGPT's tokens: it begins with 7, not with 278895051 or "
            "20240520");
  EXPECT_EQ(refusal(""),
            "x.bin: this is no file of nanoGPT's tokens: it begins with 0, not with 278895051 or "
            "20240520");
  EXPECT_EQ(refusal(bytes_of({kMagic, 1, 8, 2}, {}).substr(0, 900)),
            "x.bin: its 900 bytes are too few for the header of 1024: the file is cut off");
  EXPECT_EQ(refusal(bytes_of({kMagic, 2, 8, 2}, tokens)),
            "x.bin: version 2 of the format is not known; 1 is");
  EXPECT_EQ(refusal(bytes_of({kMagic, 1, 8, 3}, tokens)),
            "x.bin: tokens of 3 bytes are not known; 2 (uint16) and 4 (uint32) are");
  EXPECT_EQ(refusal(bytes_of({kMagic, 1, 8, 4}, tokens)),
            "x.bin: its header says 8 tokens of 4 bytes, 16 bytes follow it: the file is cut off");
  EXPECT_EQ(refusal(bytes_of({kMagic, 1, 9, 2}, tokens)),
            "x.bin: its header says 9 tokens of 2 bytes, 16 bytes follow it: the file is cut off");
  EXPECT_EQ(refusal(bytes_of({kMagic, 1, -1, 2}, tokens)),
            "x.bin: its header says -1 tokens of 2 bytes, 16 bytes follow it: the file is cut off");
  EXPECT_EQ(refusal(bytes_of({kMagic, 1, 3, 2}, tokens)),
            "file_pattern: none of the files (x.bin) has the 4 tokens of a sample of seq_len 3");
  EXPECT_EQ(refusal_of(reading("/nowhere/*.bin")),
            "file_pattern: no file is named like '/nowhere/*.bin'");
  EXPECT_EQ(refusal_of(reading("/nowhere/a.bin")),
            "file_pattern: no file is named like '/nowhere/a.bin'");
  EXPECT_EQ(refusal_of(reading(folder.path())),
            cat("cannot read ", folder.path(), ": Is a directory"));
}

TEST(NanogptTest, WritesWhatItReads) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("x.bin");
  for (const int64_t vocab_size : {65536, 65537}) {
    const Tokens first = {1, 0, 2, vocab_size - 1};
    const Tokens second(5000, 7);
    BinShardWriter writer(path, vocab_size);
    writer.add(first);
    writer.add(second);
    writer.add({});
    writer.add(first);
    writer.finish();
    const BinShard shard = BinShard::read(path);
    EXPECT_EQ(shard.token_bytes, vocab_size == 65536 ? 2 : 4);
    ASSERT_EQ(shard.num_tokens, 5008);
    const BinTokens tokens(shard);
    EXPECT_EQ(tokens.read(0, 4), first);
    EXPECT_EQ(tokens.read(4, 5000), second);
    EXPECT_EQ(tokens.find(7, 0), 4);
    EXPECT_EQ(tokens.find(vocab_size - 1, 4), 5007);  // beyond the first piece
    EXPECT_EQ(tokens.find(3, 0), 5008);
  }
}

TEST(NanogptTest, TokensThatTheModelDoesNotHaveAreNamedWithTheirPlace) {
  const TemporaryDirectory folder;
  const std::string path =
      folder.write("x.bin", bytes_of({kMagic, 1, 8, 2}, {1, 2, 3, 4, 5, 6, 300, 8}));
  Ranks ranks(reading(path), 1, 1);
  EXPECT_EQ(ranks.next(), (std::vector<Tokens>{{1, 2, 3, 4}}));
  EXPECT_EQ(error_of<InputError>([&] { ranks.next(); }),
            cat(path,
                ": token id 300 (token 6, at byte 1036) is outside the model's vocabulary "
                "(vocab_size 300); the tokens were made for another model"));
}

TEST(NanogptTest, FilesWithoutASampleThatBeginsADocumentEndTheRun) {
  NanogptDatasetConfig config = reading(bin_file("?.bin"), 16);
  config.align_to_bos = true;
  EXPECT_EQ(error_of<UserError>([&] { check(config); }), "align_to_bos: true needs bos_token");
  config.bos_token = 0;
  EXPECT_EQ(error_of<InputError>([&] { Ranks(config, 1, 1).next(); }),
            cat(bin_file("a.bin"), ", ...: no sample of 17 tokens begins with bos_token 0"));
}

TEST(NanogptTest, AFileThatChangesUnderARunEndsIt) {
  const TemporaryDirectory folder;
  const std::string path = folder.write("x.bin", read_file(bin_file("c.bin")));
  Ranks ranks(reading(path), 1, 1);
  ranks.next();
  folder.write("x.bin", read_file(bin_file("a.bin")));
  EXPECT_EQ(error_of<InputError>([&] { ranks.next(); }),
            cat(path, " changed while it was in use: it had 1152 bytes, it has 1626"));
  // Not opened yet.
  folder.write("x.bin", read_file(bin_file("c.bin")));
  Ranks unread(reading(path), 1, 1);
  folder.write("x.bin", read_file(bin_file("a.bin")));
  EXPECT_EQ(error_of<InputError>([&] { unread.next(); }),
            cat(path, " changed while it was in use: it was written to"));
}

TEST(NanogptTest, OtherDataAreReadFromTheBeginningWhereTheyAreAllowed) {
  Ranks ranks(reading(bin_file("[ab].bin"), 16), 1, 1);
  ranks.take(3);
  automodel::test::Warnings warnings;
  LoaderContext context = context_of(1, 0, 1);
  context.allows_changed_data = true;
  context.reporter = &warnings;
  const NanogptDatasetConfig config = reading(bin_file("c.bin"), 16);
  NanogptDataset others(config, DataloaderConfig{}, context, Passes::kEndless);
  others.load_state(ranks.state());
  EXPECT_THAT(warnings.texts.back(), testing::EndsWith(": its files are read from the beginning"));
  EXPECT_EQ(others.state().at("consumed").as_int(), 3);
  EXPECT_EQ(sequences_of(*others.next()), Ranks(config, 1, 1).next());
}

TEST(NanogptTest, APositionOfOtherDataIsRefused) {
  Ranks ranks(reading(bin_file("[ab].bin"), 16), 1, 1);
  ranks.take(3);
  const Json state = ranks.state();
  const auto refusal = [&](const Json& saved, const NanogptDatasetConfig& config) {
    return error_of<InputError>([&] { Ranks(config, 1, 1).load_state(saved); });
  };
  NanogptDatasetConfig config = reading(bin_file("[ab].bin"), 16);
  EXPECT_EQ(refusal(state, config), "no error");
  config.seq_len = 8;
  EXPECT_EQ(refusal(state, config), "no error");
  config.shuffle_files = true;
  EXPECT_EQ(refusal(state, config),
            "the saved data position is one with shuffle_files false, this run has true: the files "
            "come in another order");
  EXPECT_NE(refusal(state, reading(bin_file("[ac].bin"), 16)), "no error");
  config.shuffle_files = false;
  const std::pair<const char*, int> entries[] = {
      {"file", 2}, {"file", -1}, {"token", 302}, {"pass", -1}};
  for (const auto& [key, value] : entries) {
    Json damaged = state;
    damaged[key] = value;
    EXPECT_EQ(refusal(damaged, config),
              cat("the saved data position is damaged: ", key, " ", value));
  }
}

}  // namespace
}  // namespace automodel::datasets
