#include "recipes/run/inspect_data.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "config/load.h"
#include "core/error.h"
#include "core/reporter.h"
#include "datasets/tokenizer_encoder.h"
#include "recipes/read/read_recipe.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

namespace {

using datasets::kIgnoreIndex;
using datasets::Sample;

constexpr int64_t kNumRowsCounted = 1000;

/// Warnings of the dataset, as lines.
class PrintedWarnings final : public Reporter {
 public:
  void info(std::string_view) override {}
  void warning(std::string_view text) override { std::cout << "warning: " << text << "\n"; }
  void error(std::string_view text) override { std::cout << "error: " << text << "\n"; }
};

/// Marks around what counts in the loss.
struct Marks {
  const char* begin;
  const char* end;
};

bool counts(const Sample& sample, size_t position) {
  return position > 0 && sample.labels[position - 1] != kIgnoreIndex;
}

/// The text of a shifted sample; the last label's token is behind all input ids.
std::string marked_text(const Sample& sample, const datasets::TokenizerEncoder& encoder,
                        const Marks& marks) {
  std::vector<int64_t> ids(sample.input_ids.begin(),
                           sample.input_ids.begin() + sample.num_attended);
  if (!ids.empty() && sample.labels[ids.size() - 1] != kIgnoreIndex) {
    ids.push_back(sample.labels[ids.size() - 1]);
  }
  std::string out;
  for (size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    const bool is_label = counts(sample, begin);
    while (end < ids.size() && counts(sample, end) == is_label) ++end;
    const std::span<const int64_t> run(ids.data() + begin, end - begin);
    const std::string text = encoder.tokenizer().decode(run, /*skip_special_tokens=*/false);
    out += is_label ? cat(marks.begin, text, marks.end) : text;
  }
  return out;
}

/// What is counted over many samples.
struct Totals {
  int64_t num_samples = 0;
  int64_t num_tokens = 0;
  int64_t num_labels = 0;
  int64_t num_passed_over = 0;
  int64_t num_doubled_bos = 0;
  int64_t num_without_end = 0;
  std::vector<int64_t> lengths;

  void add(const Sample& sample, int64_t index, const datasets::TextEncoder& encoder) {
    ++num_samples;
    num_tokens += sample.num_attended;
    lengths.push_back(sample.num_attended);
    bool ends = false;
    for (const int64_t label : sample.labels) {
      if (label == kIgnoreIndex) continue;
      ++num_labels;
      ends = ends || encoder.is_special(label);
    }
    if (!ends) ++num_without_end;
    if (sample.row != index) ++num_passed_over;
    const auto& ids = sample.input_ids;
    if (ids.size() > 1 && encoder.bos_token_id() == ids[0] && ids[0] == ids[1]) ++num_doubled_bos;
  }

  std::string text() const {
    std::vector<int64_t> sorted = lengths;
    std::ranges::sort(sorted);
    std::string out = cat(num_samples, " samples: ", sorted.front(), " to ", sorted.back(),
                          " tokens, half of them up to ", sorted[sorted.size() / 2], "\n");
    out += cat(num_labels, " of ", num_tokens, " tokens count in the loss (",
               format_fixed(100.0 * static_cast<double>(num_labels) /
                                static_cast<double>(std::max<int64_t>(num_tokens, 1)),
                            1),
               " %)\n");
    out += cat("rows without a label, which gave way to the next: ", num_passed_over, "\n");
    out += cat("samples that begin with two BOS: ", num_doubled_bos, "\n");
    out +=
        cat("samples without a special token among the labels (no end to learn): ", num_without_end,
            "\n");
    return out;
  }
};

Recipe read(const config::Document& document, config::Diagnostics& diagnostics) {
  Recipe recipe = read_recipe(document.root, diagnostics);
  const auto errors = diagnostics.render_all(config::Severity::kError);
  if (!errors.empty()) throw UserError(join(errors, "\n"));
  const auto unsupported = diagnostics.render_all(config::Severity::kUnsupported);
  if (recipe.dataset.plan == nullptr) throw UnsupportedError(join(unsupported, "\n"));
  return recipe;
}

void print(const datasets::Dataset& dataset, const datasets::TokenizerEncoder& encoder,
           int64_t num_samples) {
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  const Marks marks = is_terminal ? Marks{"\x1b[32m", "\x1b[0m"} : Marks{"[[", "]]"};
  std::cout << "What counts in the loss is " << (is_terminal ? "green" : "between [[ and ]]")
            << ".\n";
  Totals totals;
  for (int64_t i = 0; i < std::min(dataset.size(), std::max(num_samples, kNumRowsCounted)); ++i) {
    const Sample sample = dataset.at(i);
    totals.add(sample, i, encoder);
    if (i >= num_samples) continue;
    std::cout << "--- " << dataset.origin(sample.row) << ", " << sample.num_attended << " tokens\n"
              << marked_text(sample, encoder, marks) << "\n";
  }
  std::cout << "---\n" << dataset.size() << " rows; of the first ones:\n" << totals.text();
}

}  // namespace

int inspect_data(const std::string& path, const std::vector<std::string>& overrides,
                 int64_t num_samples) {
  const config::Document document = config::load_recipe(path, overrides);
  config::Diagnostics diagnostics(document.sources);
  const Recipe recipe = read(document, diagnostics);
  if (!recipe.dataset.plan->needs_tokenizer()) {
    throw UserError("this dataset draws its tokens; there is nothing to look at");
  }
  const std::string folder = tokenizer_folder(recipe, recipe.dataset);
  if (folder.empty()) throw UserError("the recipe's tokenizer is not on this machine");
  const datasets::TokenizerEncoder encoder(tokenizers::Tokenizer::load(folder));
  PrintedWarnings warnings;
  DataContext data;
  data.encoder = &encoder;
  data.context.reporter = &warnings;
  data.packing = recipe.packing;
  const std::unique_ptr<datasets::BatchStream> stream = recipe.dataset.plan->build(data);
  const auto* loader = dynamic_cast<const datasets::DataLoader*>(stream.get());
  AM_CHECK(loader != nullptr, "a dataset with a tokenizer has a loader");
  print(loader->dataset(), encoder, num_samples);
  return 0;
}

}  // namespace automodel::recipes
