#include "recipes/commands/inspect_data.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "config/load.h"
#include "core/error.h"
#include "core/output_file.h"
#include "core/reporter.h"
#include "datasets/samples/answer_end.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "recipes/commands/inspect_report.h"
#include "recipes/commands/sample_lines.h"
#include "recipes/read/classifier_labels.h"
#include "recipes/read/hub_inputs.h"
#include "recipes/read/read_data.h"
#include "recipes/read/read_model.h"
#include "recipes/read/recipe.h"
#include "recipes/run/session_data.h"

namespace automodel::recipes {

namespace {

using datasets::kIgnoreIndex;
using datasets::Sample;

constexpr int64_t kNumRowsCounted = 1000;
constexpr size_t kNumWrongRowsShown = 20;

/// Keeps the dataset's warnings for the report.
class KeptWarnings final : public Reporter {
 public:
  explicit KeptWarnings(std::vector<std::string>& warnings) : warnings_(warnings) {}
  void info(std::string_view) override {}
  void warning(std::string_view text) override { warnings_.emplace_back(text); }
  void error(std::string_view text) override { warnings_.emplace_back(text); }

 private:
  std::vector<std::string>& warnings_;
};

/// All tokens of a sample and which of them count. In a shifted sample a token's label is one place
/// earlier, and the last label of each document is a token that follows its input ids.
struct CountedTokens {
  std::vector<int64_t> ids;
  std::vector<bool> counts;

  CountedTokens(const Sample& sample, bool is_unshifted) {
    std::vector<int64_t> lengths = sample.document_lengths;
    if (lengths.empty()) lengths.push_back(sample.num_attended);
    size_t end = 0;
    for (const int64_t length : lengths) {
      const size_t begin = end;
      end += static_cast<size_t>(length);
      for (size_t i = begin; i < end; ++i) {
        if (is_unshifted) {
          add(sample.input_ids[i], sample.labels[i]);
          continue;
        }
        int64_t label = i > begin ? sample.labels[i - 1] : kIgnoreIndex;
        if (label != kIgnoreIndex && label != sample.input_ids[i]) {  // padding follows
          add(label, label);
          label = kIgnoreIndex;
        }
        add(sample.input_ids[i], label);
      }
      if (is_unshifted || length == 0) continue;
      if (const int64_t last = sample.labels[end - 1]; last != kIgnoreIndex) add(last, last);
    }
  }

 private:
  void add(int64_t id, int64_t label) {
    ids.push_back(id);
    counts.push_back(label != kIgnoreIndex);
  }
};

std::vector<TextRun> runs_of(const CountedTokens& tokens,
                             const datasets::TokenizerEncoder& encoder) {
  std::vector<TextRun> runs;
  for (size_t begin = 0, end = 0; begin < tokens.ids.size(); begin = end) {
    const bool is_label = tokens.counts[begin];
    while (end < tokens.ids.size() && tokens.counts[end] == is_label) ++end;
    const std::span<const int64_t> run(tokens.ids.data() + begin, end - begin);
    runs.push_back({encoder.tokenizer().decode(run, /*skip_special_tokens=*/false), is_label});
  }
  return runs;
}

/// A sample's text, and behind it the name of its class as what counts.
std::vector<TextRun> classified_runs(const Sample& sample, const std::vector<std::string>& classes,
                                     const datasets::TokenizerEncoder& encoder) {
  const auto is_label = [](int64_t label) { return label != kIgnoreIndex; };
  const auto label = std::ranges::find_if(sample.labels, is_label);
  const std::span<const int64_t> ids(sample.input_ids.data(),
                                     static_cast<size_t>(sample.num_attended));
  return {{cat(encoder.tokenizer().decode(ids, /*skip_special_tokens=*/false), " "), false},
          {classes.at(static_cast<size_t>(*label)), true}};
}

/// A source's text, and behind it the target's as what counts.
std::vector<TextRun> runs_of_target(const Sample& sample,
                                    const datasets::TokenizerEncoder& encoder) {
  std::vector<int64_t> target = sample.labels;
  std::erase(target, kIgnoreIndex);
  const tokenizers::Tokenizer& tokenizer = encoder.tokenizer();
  return {{cat(tokenizer.decode(sample.source_ids, /*skip_special_tokens=*/false), " "), false},
          {tokenizer.decode(target, /*skip_special_tokens=*/false), true}};
}

/// A query and its passages in a line each; that which answers it is what counts.
std::vector<TextRun> runs_of_group(const Sample& sample,
                                   const datasets::TokenizerEncoder& encoder) {
  std::vector<TextRun> runs;
  size_t begin = 0;
  for (size_t i = 0; i < sample.document_lengths.size(); ++i) {
    const auto length = static_cast<size_t>(sample.document_lengths[i]);
    const std::span<const int64_t> ids(sample.input_ids.data() + begin, length);
    const char* const what = i == 0 ? "query:   " : i == 1 ? "\nanswer:  " : "\nanother: ";
    runs.push_back({what, false});
    runs.push_back({encoder.tokenizer().decode(ids, /*skip_special_tokens=*/false), i == 1});
    begin += length;
  }
  return runs;
}

/// How many of the samples that were looked at have each class: "classes: negative 5, positive 3".
std::string classes_line(const std::vector<std::string>& classes,
                         const std::vector<int64_t>& counts) {
  constexpr size_t kMostShown = 50;
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(classes.size(), kMostShown); ++i) {
    texts.push_back(cat(classes[i], " ", counts[i]));
  }
  return cat("classes: ", join(texts, ", "),
             classes.size() > kMostShown ? cat(" and ", classes.size() - kMostShown, " more") : "");
}

/// Sums over many samples.
struct Totals {
  bool has_token_labels = true;  ///< else samples have classes, or are queries with passages
  int64_t num_samples = 0;
  int64_t num_tokens = 0;
  int64_t num_labels = 0;
  int64_t num_without_label = 0;  ///< rows, those that gave way to the next included
  int64_t num_doubled_bos = 0;
  int64_t num_without_end = 0;
  int64_t num_merged_borders = 0;
  int64_t num_samples_cut = 0;
  int64_t num_tokens_cut = 0;
  std::vector<int64_t> lengths;

  void add(const Sample& sample, int64_t index, const datasets::TextEncoder& encoder) {
    ++num_samples;
    const int64_t length = sample.num_attended + std::ssize(sample.source_ids);
    num_tokens += length;
    lengths.push_back(length);
    num_labels += std::ssize(sample.labels) - std::ranges::count(sample.labels, kIgnoreIndex);
    if (!datasets::ends_with_special(sample.labels, encoder)) ++num_without_end;
    if (sample.row != index || !sample.has_label()) ++num_without_label;
    if (sample.has_merged_border) ++num_merged_borders;
    if (sample.num_cut > 0) ++num_samples_cut;
    num_tokens_cut += sample.num_cut;
    const auto& ids = sample.input_ids;
    if (ids.size() > 1 && encoder.bos_token_id() == ids[0] && ids[0] == ids[1]) ++num_doubled_bos;
  }

  std::vector<std::string> lines() const {
    std::vector<int64_t> sorted = lengths;
    std::ranges::sort(sorted);
    const double share = 100.0 * static_cast<double>(num_labels) /
                         static_cast<double>(std::max<int64_t>(num_tokens, 1));
    std::vector<std::string> all = {
        num_samples == 1 ? cat("1 sample: ", sorted[0], " tokens")
                         : cat(num_samples, " samples: ", sorted.front(), " to ", sorted.back(),
                               " tokens, half of them up to ", sorted[sorted.size() / 2]),
        cat("samples that truncation cut: ", num_samples_cut, " (", num_tokens_cut, " tokens)")};
    const std::string bos = cat("samples that begin with two BOS: ", num_doubled_bos);
    if (!has_token_labels) {
      all.push_back(bos);
      return all;
    }
    all.insert(all.begin() + 1, cat(num_labels, " of ", num_tokens, " tokens count in the loss (",
                                    format_fixed(share, 1), " %)"));
    const std::vector<std::string> of_labels = {
        cat("rows without a label: ", num_without_label), bos,
        cat("samples whose labels do not end with a special token (no end to learn): ",
            num_without_end)};
    all.insert(all.end(), of_labels.begin(), of_labels.end());
    if (num_merged_borders > 0) {
      all.push_back(
          cat("samples whose answer's first token gets no loss, as it takes in the prompt's "
              "last space: ",
              num_merged_borders));
    }
    return all;
  }
};

/// Reads the recipe and fetches tokenizer and data.
Recipe read_and_fetch(const config::Document& document, Reporter& reporter) {
  config::Diagnostics diagnostics(document.sources);
  Recipe recipe =
      read_with_hub(document, HubFetch::kDescriptions, /*is_run=*/true, reporter, diagnostics);
  const auto errors = diagnostics.render_all(config::Severity::kError);
  if (!errors.empty()) throw UserError(join(errors, "\n"));
  const auto unsupported = diagnostics.render_all(config::Severity::kUnsupported);
  if (recipe.dataset.plan == nullptr) throw UnsupportedError(join(unsupported, "\n"));
  ByteCounter bytes;
  fetch_inputs(recipe, reporter, bytes, HubFetch::kData);
  return recipe;
}

/// Opens the dataset; its warnings go to `warnings`. Where rows are wrong, without what reads rows
/// at the opening, so that look() finds all of them; `no_labels` says that no row has a label.
std::unique_ptr<datasets::BatchStream> open_data(const Recipe& recipe,
                                                 const datasets::TextEncoder& encoder,
                                                 Reporter& warnings, std::string& no_labels) {
  DataContext data;
  data.encoder = &encoder;
  data.classifier = classifier_facts(recipe);
  data.texts = retrieval_texts(recipe, false);
  data.context.reporter = &warnings;
  data.context.seed = recipe.seed;
  data.packing = recipe.packing;
  data.schedule = schedule_of(recipe);
  try {
    return recipe.dataset.plan->build(data);
  } catch (const datasets::NoLabelsError& error) {
    no_labels = error.what();
  } catch (const InputError&) {
  }
  data.reads_first_rows = false;
  data.packing.reset();
  return recipe.dataset.plan->build(data);
}

/// Opens the data as a run on one rank does, and writes samples as JSON.
void write_json(const Recipe& recipe, const datasets::TextEncoder* encoder, int64_t num_samples) {
  SilentReporter silent;
  DataContext data;
  data.encoder = encoder;
  data.classifier = classifier_facts(recipe);
  data.texts = retrieval_texts(recipe, false);
  data.context.reporter = &silent;
  data.context.seed = recipe.seed;
  data.context.vocab_size = vocabulary_of(recipe.model);
  data.context.labels_are_tokens = !recipe.model.classifies && !recipe.model.makes_embeddings;
  data.loader = recipe.dataloader;
  data.packing = recipe.packing;
  data.schedule = schedule_of(recipe);
  const auto stream = recipe.dataset.plan->build(data);
  write_sample_lines(*stream, num_samples, std::cout);
  std::cout.flush();
}

/// Returns what is wrong with rows, a text each.
std::vector<std::string> look(const Recipe& recipe, const datasets::Dataset& dataset,
                              const datasets::TokenizerEncoder& encoder, int64_t num_samples,
                              InspectReport& report) {
  const DatasetRecipe& plan = *recipe.dataset.plan;
  const std::vector<std::string> classes = classifier_facts(recipe).labels;
  std::vector<int64_t> class_counts(classes.size());
  Totals totals;
  totals.has_token_labels = !plan.gives_classes() && plan.num_passages() == 0;
  std::vector<std::string> wrong;
  const int64_t num_rows = std::min(dataset.size(), std::max(num_samples, kNumRowsCounted));
  for (int64_t number = 0; number < num_rows; ++number) {
    const int64_t i = dataset.index_to_show(number);
    Sample sample;
    try {
      sample = dataset.at(i);
    } catch (const datasets::NoLabelsError& error) {  // of all rows
      wrong = {error.what()};
      break;
    } catch (const InputError& error) {
      wrong.emplace_back(error.what());
      continue;
    }
    totals.add(sample, i, encoder);
    if (plan.gives_classes()) {
      for (const int64_t label : sample.labels) {
        if (label != kIgnoreIndex) ++class_counts.at(static_cast<size_t>(label));
      }
    }
    if (totals.num_samples > num_samples) continue;
    if (plan.gives_classes()) {
      report.samples.push_back({dataset.origin(sample.row), sample.num_attended, sample.num_cut,
                                classified_runs(sample, classes, encoder)});
      continue;
    }
    if (plan.gives_sources()) {
      report.samples.push_back({dataset.origin(sample.row),
                                sample.num_attended + std::ssize(sample.source_ids), sample.num_cut,
                                runs_of_target(sample, encoder)});
      continue;
    }
    if (plan.num_passages() > 0) {
      report.samples.push_back({dataset.origin(sample.row), sample.num_attended, sample.num_cut,
                                runs_of_group(sample, encoder)});
      continue;
    }
    const CountedTokens tokens(sample, plan.is_unshifted());
    report.samples.push_back({dataset.origin(sample.row), sample.num_attended, sample.num_cut,
                              runs_of(tokens, encoder)});
  }
  if (totals.num_samples > 0) report.totals = totals.lines();
  if (plan.gives_classes()) report.totals.push_back(classes_line(classes, class_counts));
  const bool shows_parts = plan.parts() != nullptr && !recipe.packing;
  report.totals.insert(report.totals.begin(), cat(dataset.size(), " rows; of the first ones",
                                                  shows_parts ? " of each dataset:" : ":"));
  const std::vector<std::string> unread = plan.unread_columns();
  if (!unread.empty())
    report.totals.push_back(cat("columns that nothing reads: ", join(unread, ", ")));
  return wrong;
}

/// An error that names the wrong rows, the first of them at least.
InputError error_of_rows(const std::vector<std::string>& wrong) {
  std::string text;
  for (size_t i = 0; i < std::min(wrong.size(), kNumWrongRowsShown); ++i) {
    text += cat(i == 0 ? "" : "\n", wrong[i]);
  }
  if (wrong.size() == 1) return InputError(text);
  return InputError(cat(text, wrong.size() > kNumWrongRowsShown ? "\n...\n" : "\n", wrong.size(),
                        " rows are wrong; a run ends at the first that it reads"));
}

}  // namespace

int inspect_data(const std::string& path, const std::vector<std::string>& overrides,
                 const InspectOptions& options) {
  InspectReport report;
  report.recipe = path;
  KeptWarnings warnings(report.warnings);
  const Recipe recipe = read_and_fetch(config::load_recipe(path, overrides), warnings);
  const DatasetRecipe& plan = *recipe.dataset.plan;
  if (plan.is_stream() && !options.as_json) {
    throw UnsupportedError(
        "inspect-data of files of tokens is not in this version but with --json");
  }
  if (!plan.needs_tokenizer()) {
    if (!options.as_json) {
      throw UserError("this dataset draws its tokens; --json shows them, there is no text");
    }
    write_json(recipe, nullptr, options.num_samples);
    return 0;
  }
  const std::string folder = tokenizer_folder(recipe, recipe.dataset);
  if (folder.empty()) throw UserError("the recipe's tokenizer is not on this machine");
  const datasets::TokenizerEncoder encoder(tokenizers::Tokenizer::load(folder),
                                           recipe.dataset.encoder_options);
  if (options.as_json) {
    write_json(recipe, &encoder, options.num_samples);
    return 0;
  }
  std::string no_labels;
  const std::unique_ptr<datasets::BatchStream> stream =
      open_data(recipe, encoder, warnings, no_labels);
  const auto* loader = dynamic_cast<const datasets::DataLoader*>(stream.get());
  AM_CHECK(loader != nullptr, "a dataset with a tokenizer has a loader");
  std::vector<std::string> wrong =
      look(recipe, loader->dataset(), encoder, options.num_samples, report);
  if (wrong.empty() && !no_labels.empty()) wrong = {no_labels};
  if (!options.html.empty()) {
    write_output_file(options.html, to_html(report));
    if (!is_standard_output(options.html)) {
      std::cout << options.html << ": " << report.samples.size() << " samples\n";
    }
    if (!wrong.empty()) throw error_of_rows(wrong);
    return 0;
  }
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  std::cout << "What counts in the loss is " << (is_terminal ? "green" : "between [[ and ]]")
            << ".\n"
            << to_text(report, is_terminal ? "\x1b[32m" : "[[", is_terminal ? "\x1b[0m" : "]]");
  std::cout.flush();
  if (!wrong.empty()) throw error_of_rows(wrong);
  return 0;
}

}  // namespace automodel::recipes
