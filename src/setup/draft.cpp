#include "setup/draft.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "config/load.h"
#include "core/error.h"
#include "core/file.h"
#include "core/is_one_of.h"
#include "recipes/check/check_run.h"
#include "recipes/read/hub_inputs.h"
#include "setup/new_file.h"

namespace automodel::setup {

namespace {

struct Question {
  const char* option;
  const char* text;
  std::string DraftRequest::*answer;
};

/// What a request must say, in the order in which it is asked for.
std::vector<Question> missing_of(const DraftRequest& request) {
  const Question all[] = {
      {"--task", "What for", &DraftRequest::task},
      {"--model", "Model (folder, or name on the hub)", &DraftRequest::model},
      {"--data", "Data (file, folder, or name on the hub)", &DraftRequest::data},
      {"--teacher", "Teacher (folder, or name on the hub)", &DraftRequest::teacher}};
  std::vector<Question> missing;
  for (const Question& question : all) {
    const bool is_data = question.answer == &DraftRequest::data;
    const bool is_teacher = question.answer == &DraftRequest::teacher;
    const bool is_wanted =
        (!is_data || request.task != "benchmark") && (!is_teacher || request.task == "distill");
    if (is_wanted && (request.*question.answer).empty()) missing.push_back(question);
  }
  return missing;
}

void check_task(const std::string& task) {
  const std::vector<std::string> tasks = draft_tasks();
  if (std::find(tasks.begin(), tasks.end(), task) != tasks.end()) return;
  throw UserError(
      cat("unknown task '", task, "'", did_you_mean(task, tasks), "; tasks: ", join(tasks, ", ")));
}

/// A recipe that `check` finds wrong is not handed out.
void check_draft(const std::string& text, const DraftRequest& request) {
  const config::Document document = config::load_text(text, request.output);
  config::Diagnostics diagnostics(document.sources);
  SilentReporter silent;
  const recipes::Recipe recipe = recipes::read_with_hub(document, recipes::HubFetch::kDescriptions,
                                                        /*is_run=*/false, silent, diagnostics);
  recipes::check_run(recipe, {.world_size = request.num_ranks}, diagnostics);
  diagnostics.throw_if_errors();
}

DraftFacts find_facts(const DraftRequest& request, Reporter& reporter) {
  DraftFacts facts{.model = look_at_model(request.model, "--model", reporter)};
  if (facts.model.is_encoder && !is_one_of({"classify", "embed"}, request.task)) {
    throw UnsupportedError(cat("--model ", request.model,
                               " is an encoder, which this version trains to classify texts or to "
                               "make embeddings of them alone: --task classify or embed"));
  }
  if (facts.model.reads_sources && !is_one_of({"sft", "lora", "qlora"}, request.task)) {
    throw UnsupportedError(cat("--model ", request.model,
                               " is of an encoder and a decoder, which this version trains on "
                               "sources and targets alone: --task sft, lora or qlora"));
  }
  if (!request.teacher.empty()) {
    facts.teacher = look_at_model(request.teacher, "--teacher", reporter);
  }
  if (!request.data.empty()) {
    const NamedColumns columns = parse_columns(request.columns);
    const bool has_classes = request.task == "classify";
    if (!has_classes && !columns.label.empty()) {
      throw UserError(cat("--columns: label is for --task classify, not ", request.task));
    }
    if (request.task == "embed" && !request.columns.empty()) {
      throw UserError("--columns: the rows of --task embed have query, pos_doc and neg_doc");
    }
    if (has_classes && !request.columns.empty() && columns.label.empty()) {
      throw UserError("--columns: --task classify needs text=NAME,label=NAME");
    }
    facts.data = look_at_data(request.data, columns, has_classes, reporter);
  }
  facts.of_tokenizer = facts.model.tokenizer;
  if (!request.tokenizer.empty()) {
    const std::string path = path_join(request.tokenizer, "tokenizer.json");
    if (!path_exists(path)) throw UserError(cat("--tokenizer: there is no ", path));
    facts.tokenizer = std::filesystem::canonical(request.tokenizer);
    facts.of_tokenizer = look_at_tokenizer(facts.tokenizer);
  } else if (!facts.model.has_tokenizer && request.task != "benchmark") {
    throw UserError(
        cat("--model ", request.model, " has no tokenizer.json; --tokenizer FOLDER names one"));
  }
  return facts;
}

}  // namespace

std::vector<std::string> draft_tasks() {
  return {"pretrain", "sft", "chat", "lora", "qlora", "distill", "classify", "embed", "benchmark"};
}

void ask_for_missing(DraftRequest& request, std::istream& in, std::ostream& out) {
  for (auto missing = missing_of(request); !missing.empty(); missing = missing_of(request)) {
    const Question& question = missing.front();
    const bool is_task = question.answer == &DraftRequest::task;
    out << question.text << (is_task ? cat(" (", join(draft_tasks(), ", "), ")") : "") << "? "
        << std::flush;
    std::string line;
    if (!std::getline(in, line)) {
      throw UserError(cat("no answer; ", question.option, " says it on the command line"));
    }
    request.*question.answer = std::string(trim(line));
    if (is_task && !request.task.empty()) check_task(request.task);
  }
}

int run_new(DraftRequest request) {
  if (!request.task.empty()) check_task(request.task);
  if (request.num_ranks < 1) throw UserError("--nproc must be at least 1");
  if (path_exists(request.output)) {
    throw UserError(cat(request.output, " is there already; -o names another file"));
  }
  if (const auto missing = missing_of(request); !missing.empty()) {
    if (::isatty(STDIN_FILENO) == 0) {
      std::vector<std::string> options;
      for (const Question& question : missing) options.emplace_back(question.option);
      throw UserError(
          cat("a new recipe needs ", join(options, ", "), "; on a terminal they are asked for"));
    }
    ask_for_missing(request, std::cin, std::cerr);
  }
  if (!request.teacher.empty() && request.task != "distill") {
    throw UserError(cat("--teacher is for --task distill, not ", request.task));
  }
  if (!request.data.empty() && request.task == "benchmark") {
    throw UserError("--task benchmark reads random tokens, no --data");
  }
  if (!request.columns.empty() && request.data.empty()) {
    throw UserError("--columns names columns of --data");
  }
  SilentReporter reporter;
  const std::string text = draft_text(request, find_facts(request, reporter));
  check_draft(text, request);
  write_new_file(request.output, text);
  const std::string file = shell_word(request.output);
  std::cout << request.output << ": written, and right for " << request.num_ranks
            << (request.num_ranks == 1 ? " rank" : " ranks") << "\n"
            << (request.data.empty()
                    ? std::string()
                    : cat("automodel inspect-data ", file,
                          "    what it trains on, and whether any row is wrong: the first one "
                          "was read\n"))
            << "automodel plan " << file << "            the memory that it takes\n"
            << "automodel run " << file
            << (request.num_ranks == 1 ? std::string()
                                       : cat(" --nproc-per-node ", request.num_ranks))
            << "\n";
  return 0;
}

}  // namespace automodel::setup
