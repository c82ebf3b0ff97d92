#pragma once

#include <sys/types.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::test {

/// The records of a JSONL file, without a line of which only a part is written yet.
inline std::vector<Json> read_records(const std::string& path) {
  std::vector<Json> records;
  const std::string text = read_file(path);
  for (const std::string& line : split(text.substr(0, text.rfind('\n') + 1), '\n')) {
    if (!line.empty()) records.push_back(Json::parse(line, path));
  }
  return records;
}

/// The events of trackers in a run's folder, as "NAME sent N lost N".
inline std::vector<std::string> tracker_tallies(const std::string& folder) {
  std::vector<std::string> texts;
  for (const Json& event : read_records(path_join(folder, "events.jsonl"))) {
    if (event.at("event").as_string() != "tracker") continue;
    texts.push_back(cat(event.at("tracker").as_string(), " sent ", event.at("sent").as_int(),
                        " lost ", event.at("lost").as_int()));
  }
  return texts;
}

/// `automodel run recipes/smoke/tiny_llama_sft.yaml` with its results in `folder`.
inline std::vector<std::string> smoke_run(const std::string& folder,
                                          const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {automodel_binary(), "run",
                                        source_file("recipes/smoke/tiny_llama_sft.yaml"),
                                        cat("--checkpoint.checkpoint_dir=", folder)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// Waits until a run has logged a step. Throws when it has not within a minute.
inline void wait_for_records(const std::string& path) {
  const double deadline = monotonic_seconds() + 60;
  while (!path_exists(path) || file_size(path) == 0) {
    if (monotonic_seconds() > deadline) throw std::runtime_error("no record in " + path);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// The processes that a process started.
inline std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  for (const std::string& word :
       split(trim(read_file(cat("/proc/", pid, "/task/", pid, "/children"))), ' ')) {
    if (const auto child = parse_int(word)) children.push_back(static_cast<pid_t>(*child));
  }
  return children;
}

/// Keys of records: of numbers, and of counts.
struct RecordKeys {
  std::vector<const char*> numbers = {"loss", "grad_norm"};
  std::vector<const char*> counts = {"num_tokens_per_step", "num_label_tokens"};
};

/// Numbers within a relative tolerance of each other, counts equal.
inline void expect_equal_records(const std::vector<Json>& wanted, const std::vector<Json>& found,
                                 double tolerance, const RecordKeys& keys = {}) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (const char* key : keys.numbers) {
      const double value = wanted[i].at(key).as_double();
      EXPECT_NEAR(found[i].at(key).as_double(), value, tolerance * std::abs(value))
          << key << " of step " << i;
    }
    for (const char* key : keys.counts) {
      EXPECT_EQ(found[i].at(key).as_int(), wanted[i].at(key).as_int()) << key;
    }
  }
}

/// How far a number of the records is from the wanted one, of itself, over all steps.
inline double summed_distance(const std::vector<Json>& wanted, const std::vector<Json>& found,
                              const char* key) {
  EXPECT_EQ(found.size(), wanted.size());
  double sum = 0;
  for (size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    sum += std::abs(found[i].at(key).as_double() / wanted[i].at(key).as_double() - 1);
  }
  return sum;
}

/// Rounded to bfloat16, which shows: sums of float32 in another order are within 2e-6 a step. No
/// farther from float32 than twice what a peer is that is rounded too.
inline void expect_rounded_as_peer(const std::vector<Json>& exact, const std::vector<Json>& found,
                                   const std::vector<Json>& peer) {
  for (const char* key : {"loss", "grad_norm"}) {
    EXPECT_LE(summed_distance(exact, found, key), 2 * summed_distance(exact, peer, key)) << key;
  }
  EXPECT_GT(summed_distance(exact, found, "grad_norm"), 1e-4);
}

/// `automodel COMMAND recipes/smoke/mock_pretrain.yaml` with a golden model.
inline ProgramResult mock_on_golden(const char* command, const std::string& golden,
                                    const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      automodel_binary(),
      command,
      source_file("recipes/smoke/mock_pretrain.yaml"),
      "--dataset.vocab_size=64",
      "--dataset.seq_len=16",
      "--model.config=None",
      "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
      cat("--model.pretrained_model_name_or_path=", source_file("tests/golden/" + golden)),
      "--lr_scheduler=none"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}

/// How a run is spread over processes.
struct Spread {
  int num_ranks = 1;
  std::vector<std::string> options;
};

/// Fully sharded, computing and reducing in float32 so that losses can be compared closely.
inline Spread sharded(int num_ranks, const std::vector<std::string>& more = {}) {
  Spread spread{num_ranks,
                {"--distributed.strategy=fsdp2", "--distributed.mp_policy.param_dtype=float32",
                 "--distributed.mp_policy.reduce_dtype=float32"}};
  spread.options.insert(spread.options.end(), more.begin(), more.end());
  return spread;
}

/// Appends the arguments of a spread.
inline std::vector<std::string> on(const Spread& spread, std::vector<std::string> arguments) {
  arguments.push_back(cat("--nproc-per-node=", spread.num_ranks));
  arguments.insert(arguments.end(), spread.options.begin(), spread.options.end());
  return arguments;
}

/// The training records of a smoke run on a spread, which must end well.
inline std::vector<Json> smoke_records(const std::string& folder, const Spread& spread,
                                       const std::vector<std::string>& keys) {
  const ProgramResult run = run_program(on(spread, smoke_run(folder, keys)));
  EXPECT_EQ(run.status, 0) << run.err;
  return read_records(path_join(folder, "training.jsonl"));
}

}  // namespace automodel::test
