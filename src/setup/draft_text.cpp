#include <algorithm>
#include <optional>

#include "core/divide.h"
#include "core/error.h"
#include "core/file.h"
#include "setup/draft.h"

namespace automodel::setup {

namespace {

constexpr const char* kComponents = "nemo_automodel.components.";

/// Marks the assistant's turns, for tokenizers that have no template of their own.
constexpr const char* kPlainTemplate = R"(
  # The tokenizer has no chat template: this one marks the turns with texts of its own.
  chat_template: |-
    {%- if tools %}
    {{- '<|im_start|>tools\n' + (tools | tojson) + '<|im_end|>\n' }}
    {%- endif %}
    {%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.role == 'assistant' %}
    {%- generation %}{{ message.content or '' }}
    {%- for call in message.tool_calls or [] %}
    {{- '<tool_call>' + (call.function | tojson) + '</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>' }}{% endgeneration %}
    {%- else %}
    {{- (message.content or '') + '<|im_end|>' }}
    {%- endif %}
    {{- '\n' }}
    {%- endfor %}
    {%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
)";

/// The numbers of a recipe that follow from its task and data.
struct Sizes {
  int64_t sequence = 0;
  int64_t local_batch = 1;
  int64_t global_batch = 0;
  int64_t warmup = 0;
  int64_t save_interval = 200;       ///< steps between checkpoints
  int64_t validation_interval = 50;  ///< steps between validations
  double lr = 0;
  bool has_validation = false;
};

/// A text as a YAML scalar.
std::string scalar(const std::string& text) {
  const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' ||
           c == '_' || c == '-' || c == '.';
  });
  const bool begins_as_name = is_plain && text[0] != '-' && text[0] != '.' && text[0] != '_' &&
                              (text[0] < '0' || text[0] > '9');
  const std::string lower = to_lower(text);
  const bool is_word = lower == "true" || lower == "false" || lower == "null" || lower == "none" ||
                       lower == "yes" || lower == "no" || lower == "on" || lower == "off";
  return begins_as_name && !is_word ? text : Json(text).dump();
}

bool is_adapting(const std::string& task) {
  return task == "lora" || task == "qlora";
}

double learning_rate(const std::string& task) {
  if (task == "pretrain") return 3e-4;
  if (task == "classify" || task == "embed") return 2e-5;
  return is_adapting(task) ? 2e-4 : 1e-5;
}

bool is_text(const DataFacts& data) {
  return data.kind == DataKind::kPlainText || data.kind == DataKind::kTextRows ||
         data.kind == DataKind::kTokens;
}

/// About how many tokens there are, rather too few; nullopt for rows that are samples, and where
/// nobody knows.
std::optional<int64_t> tokens_of(const DraftFacts& facts) {
  if (!facts.data || !is_text(*facts.data) || facts.data->num_bytes == 0) return std::nullopt;
  constexpr int64_t kBytesPerToken = 5;
  return static_cast<int64_t>(facts.data->num_bytes) / kBytesPerToken;
}

/// The most tokens of a sample, so that a short text has some samples still.
int64_t sequence_length(const DraftFacts& facts, const std::string& task) {
  const bool is_short = task == "pretrain" || task == "benchmark";
  const bool has_texts = task == "classify" || task == "embed";
  const int64_t most = has_texts ? 512 : is_short ? 1024 : 2048;
  int64_t length = std::min(facts.model.num_positions, most);
  if (facts.teacher) length = std::min(length, facts.teacher->num_positions);
  constexpr int64_t kSamples = 64, kShortest = 32;
  const auto tokens = tokens_of(facts);
  while (tokens && length > kShortest && length * kSamples > *tokens) length /= 2;
  return length;
}

/// About how many samples an epoch has; nullopt where nobody knows.
std::optional<int64_t> samples_of(const DraftFacts& facts, int64_t sequence) {
  if (const auto tokens = tokens_of(facts)) return *tokens / sequence;
  return facts.data && !is_text(*facts.data) ? facts.data->num_rows : std::nullopt;
}

Sizes sizes_of(const DraftRequest& request, const DraftFacts& facts) {
  constexpr int64_t kUsualBatch = 16, kUsualWarmup = 10;
  Sizes sizes{.sequence = sequence_length(facts, request.task), .lr = learning_rate(request.task)};
  // T5 is fine-tuned at larger rates than decoders are.
  if (facts.model.reads_sources && !is_adapting(request.task)) sizes.lr = 1e-4;
  sizes.local_batch = sizes.sequence <= 512 ? 2 : 1;
  int64_t of_all_ranks = sizes.local_batch * request.num_ranks;
  sizes.global_batch = round_up(kUsualBatch, of_all_ranks);
  const auto samples = samples_of(facts, sizes.sequence);
  if (!samples) return sizes;
  if (*samples < of_all_ranks && sizes.local_batch > 1) {
    sizes.local_batch = 1;
    of_all_ranks = request.num_ranks;
  }
  if (*samples < of_all_ranks) {
    throw UserError(cat("--data ", request.data, " makes ", *samples,
                        *samples == 1 ? " sample" : " samples", ", too few for ", request.num_ranks,
                        request.num_ranks == 1 ? " rank" : " ranks", " with ", sizes.local_batch,
                        " each"));
  }
  const bool has_parts = facts.data->kind != DataKind::kQueries;  // by `split`
  const bool has_rows = !is_text(*facts.data) && !facts.data->is_on_hub && has_parts;
  sizes.has_validation = has_rows && *samples >= 20 * of_all_ranks && *samples >= 100;
  if (*samples < 4 * sizes.global_batch) sizes.global_batch = of_all_ranks;
  // A run refuses a warmup that is longer than itself.
  const int64_t trained = sizes.has_validation ? *samples * 95 / 100 : *samples;
  const int64_t steps = std::max<int64_t>(trained / sizes.global_batch, 1);
  sizes.warmup = std::min(kUsualWarmup, steps / 10);
  // A short run is saved half way and at its end, and looked at four times.
  sizes.save_interval = std::min(sizes.save_interval, (steps + 1) / 2);
  sizes.validation_interval = std::min(sizes.validation_interval, (steps + 3) / 4);
  return sizes;
}

void check_data_for(const DraftRequest& request, const DataFacts& data, bool needs_sources) {
  const std::string columns =
      data.columns.empty() ? "" : cat(" (its columns: ", join(data.columns, ", "), ")");
  if (needs_sources && data.kind != DataKind::kColumns) {
    throw UserError(cat("--model ", request.model,
                        " is trained on sources and targets, a question "
                        "and an answer of a row, and --data ",
                        request.data, " has none", columns,
                        "; --columns question=NAME,answer=NAME names others than the usual"));
  }
  const bool has_queries = data.kind == DataKind::kQueries;
  if (request.task == "embed" && !has_queries) {
    throw UserError(
        cat("--task embed reads queries with passages (query, pos_doc, neg_doc), and "
            "--data ",
            request.data, " has none", columns));
  }
  if (request.task != "embed" && has_queries) {
    throw UserError(cat("--data ", request.data, " has queries with passages", columns,
                        ": --task embed trains on them"));
  }
  if (has_queries && data.is_on_hub) {
    throw UserError(cat("--data ", request.data,
                        ": of the hub dataset.data_dir_list reads hf://ORGANIZATION/NAME/SUBSET; "
                        "automodel cp tiny_embedder is a recipe to begin with"));
  }
  if (request.task == "pretrain" && !is_text(data)) {
    throw UserError(cat("--task pretrain reads texts, and --data ", request.data, " has none",
                        columns, "; --task sft or chat trains on it"));
  }
  if (request.task != "pretrain" && is_text(data)) {
    throw UserError(cat("--task ", request.task,
                        " reads questions and answers or conversations, "
                        "and --data ",
                        request.data, " has none", columns, "; --task pretrain trains on texts"));
  }
  if (request.task == "chat" && data.kind != DataKind::kConversations) {
    throw UserError(cat("--task chat reads conversations, and --data ", request.data,
                        " has no messages or conversations", columns,
                        "; --task sft trains on questions and answers"));
  }
}

std::string header(const DraftRequest& request, const DraftFacts& facts) {
  const std::string ranks =
      request.num_ranks == 1 ? std::string() : cat(" --nproc-per-node ", request.num_ranks);
  const std::string file = shell_word(request.output);
  return cat("# ", request.task, ": ", facts.model.architecture, " of ", request.model,
             facts.data ? cat(" on ", request.data) : std::string(" on random tokens"), ".\n",
             "# Check:  automodel check ", file, "\n", "# Plan:   automodel plan ", file,
             " --world-size ", request.num_ranks, "\n", "# Run:    automodel run ", file, ranks,
             "\n", "# Change: any value here, or on the command line: --optimizer.lr=1e-4;\n",
             "#         automodel explain optimizer.lr says what a key means.\n");
}

std::string recipe_class(const std::string& task) {
  if (task == "distill") return "KnowledgeDistillationRecipeForNextTokenPrediction";
  if (task == "benchmark") return "BenchmarkingRecipeForNextTokenPrediction";
  if (task == "classify") return "TrainFinetuneRecipeForSequenceClassification";
  if (task == "embed") return "TrainBiEncoderRecipe";
  return "TrainFinetuneRecipeForNextTokenPrediction";
}

std::string schedule(const DraftRequest& request, const Sizes& sizes) {
  const bool is_benchmark = request.task == "benchmark";
  return cat(
      "step_scheduler:\n  # Sequences of one step over all ranks: local_batch_size x ranks "
      "x micro-batches.\n  global_batch_size: ",
      sizes.global_batch,
      "\n  # Sequences of a rank at a time: more is faster, and takes "
      "memory.\n  local_batch_size: ",
      sizes.local_batch,
      is_benchmark ? "\n  max_steps: 10\n"
                   : cat("\n  num_epochs: 1  # max_steps: N ends earlier\n  ckpt_every_steps: ",
                         sizes.save_interval, "\n"),
      sizes.has_validation ? cat("  val_every_steps: ", sizes.validation_interval, "\n") : "",
      "\ndist_env:\n  backend: gloo  # nccl: on CUDA devices\n\n");
}

/// The names of a classifier's classes, by their numbers, or how many there are.
std::string class_lines(const ClassFacts& classes) {
  if (classes.names.empty()) return cat("  num_labels: ", classes.num_classes, "\n");
  std::string text = "  id2label:  # as the rows name them\n";
  for (size_t i = 0; i < classes.names.size(); ++i) {
    text += cat("    ", i, ": ", scalar(classes.names[i]), "\n");
  }
  return text;
}

std::string model_section(const char* key, const ModelFacts& model, const std::string& task) {
  const bool draws = key == std::string("model") && (task == "pretrain" || task == "benchmark");
  const std::string dtype = task == "qlora" ? "bfloat16" : "float32";
  const std::string note =
      task == "qlora" ? "" : "  # bfloat16: half the memory, and less exact updates";
  std::string text = cat(key, ":\n");
  if (draws) {
    text +=
        cat("  # Random weights; to go on from a model's, NeMoAutoModelForCausalLM."
            "from_pretrained with\n  # pretrained_model_name_or_path here instead of config.\n"
            "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_config\n  config:\n"
            "    _target_: transformers.AutoConfig.from_pretrained\n"
            "    pretrained_model_name_or_path: ",
            scalar(model.name), "\n");
  } else {
    const char* kind = task == "classify"    ? "ForSequenceClassification"
                       : task == "embed"     ? "BiEncoder"
                       : model.reads_sources ? "ForSeq2SeqLM"
                                             : "ForCausalLM";
    text += cat("  _target_: nemo_automodel.NeMoAutoModel", kind, ".from_pretrained\n",
                "  pretrained_model_name_or_path: ", scalar(model.name), "\n");
  }
  return cat(text, "  torch_dtype: ", dtype, note, "\n");
}

/// How a model makes embeddings, unless its folder says it.
std::string embedding_lines(const DraftFacts& facts) {
  std::string text;
  if (!path_exists(path_join(facts.model.folder, "modules.json"))) {
    text =
        "  pooling: avg  # of a text's states; cls: the first one, last: the last one\n"
        "  l2_normalize: true\n";
  }
  if (facts.data->num_wrong > 0) return text;
  return text +
         "  # The passages of a micro-batch's other queries do not answer a query.\n"
         "  do_distributed_inbatch_negative: true\n";
}

std::string adapters(const std::string& task) {
  if (!is_adapting(task)) return "";
  const std::string quantization = task == "qlora"
                                       ? "# The frozen weights are held in 4 bits.\nquantization:\n"
                                         "  load_in_4bit: true\n  bnb_4bit_quant_type: nf4\n"
                                         "  bnb_4bit_use_double_quant: true\n"
                                         "  bnb_4bit_compute_dtype: bfloat16\n\n"
                                       : "";
  return cat("peft:\n  _target_: ", kComponents, "_peft.lora.PeftConfig\n",
             "  exclude_modules: [\"*lm_head\"]  # every other linear layer gets adapters\n"
             "  dim: 16    # rank: more can learn more, and takes memory\n"
             "  alpha: 32  # what an adapter adds is scaled by alpha / dim\n\n",
             quantization);
}

std::string tokenizer_lines(const DraftFacts& facts) {
  const bool is_models = facts.tokenizer.empty();
  // A model that is drawn from its configuration brings no tokenizer along.
  const std::string& folder = is_models ? facts.model.name : facts.tokenizer;
  return cat(
      "  tokenizer:\n    _target_: transformers.AutoTokenizer.from_pretrained\n"
      "    pretrained_model_name_or_path: ",
      scalar(folder), "\n");
}

std::string mock_data(const Sizes& sizes) {
  return cat("dataset:\n  _target_: ", kComponents,
             "datasets.llm.mock_iterable_dataset.MockIterableDataset\n  seq_len: ", sizes.sequence,
             "\n  num_samples: 100000\n\n");
}

std::string text_data(const DataFacts& data, const DraftFacts& facts, const Sizes& sizes) {
  return cat("dataset:\n  _target_: automodel.TextFileDataset\n  path: ", scalar(data.name),
             data.kind == DataKind::kTextRows ? cat("\n  text_column: ", scalar(data.text_column))
                                              : std::string(),
             "\n  seq_length: ", sizes.sequence, "  # tokens of a sample\n", tokenizer_lines(facts),
             "\n");
}

std::string token_data(const DataFacts& data, const DraftFacts& facts, const Sizes& sizes) {
  return cat("dataset:\n  _target_: ", kComponents,
             "datasets.llm.megatron_dataset.MegatronPretraining\n  paths: ", scalar(data.name),
             "\n  seq_length: ", sizes.sequence,
             "\n  split: \"95,5,0\"  # training, validation, test\n"
             "  splits_to_build: train\n",
             tokenizer_lines(facts), "\n");
}

/// Rows of questions and answers, or conversations: `key` is the section, `split` its part of them.
std::string row_data(const std::string& key, const std::string& split, const DataFacts& data,
                     const DraftFacts& facts, const Sizes& sizes) {
  const bool is_chat = data.kind == DataKind::kConversations;
  const std::string base = cat(kComponents, "datasets.llm.");
  std::string text =
      cat(key, ":\n  _target_: ", base,
          is_chat ? "chat_dataset.ChatDataset"
                  : "column_mapped_text_instruction_dataset.ColumnMappedTextInstructionDataset",
          "\n  path_or_dataset_id: ", scalar(data.name), "\n  split: ", scalar(split), "\n");
  const bool takes_template = !is_chat && facts.of_tokenizer.has_chat_template;
  if (!is_chat) {
    text += "  column_mapping:\n";
    if (!data.context.empty()) {
      text += cat("    context: ", scalar(data.context),
                  takes_template ? "  # becomes the system turn, as in AutoModel\n" : "\n");
    }
    text +=
        cat("    question: ", scalar(data.question), "\n    answer: ", scalar(data.answer), "\n");
  }
  if (takes_template) {
    text +=
        cat("  use_hf_chat_template: true  # turns of a system",
            data.context.empty() ? " (empty)" : "", ", a user and an assistant, as in AutoModel\n");
  }
  text += cat("  seq_length: ", sizes.sequence, "  # longer samples are cut\n",
              "  truncation: longest_first\n", tokenizer_lines(facts));
  if (!is_chat && facts.of_tokenizer.has_eos_token && !takes_template) {
    text += "    add_eos_token: true  # answers end with it: the model learns where to stop\n";
  }
  if (is_chat && !facts.of_tokenizer.has_chat_template)
    text += std::string(kPlainTemplate).substr(1);
  return cat(text, "\n");
}

/// Texts with classes, likewise.
std::string class_data(const std::string& key, const std::string& split, const DataFacts& data,
                       const DraftFacts& facts, const Sizes& sizes) {
  const ClassColumns& columns = data.classes.columns;
  return cat(
      key, ":\n  _target_: automodel.SequenceClassificationDataset\n",
      "  path_or_dataset_id: ", scalar(data.name), "\n  split: ", scalar(split),
      "\n  text_column: ", scalar(columns.text), "\n",
      columns.pair.empty() ? std::string()
                           : cat("  text_pair_column: ", scalar(columns.pair), "\n"),
      "  label_column: ", scalar(columns.label), "\n  max_length: ", sizes.sequence,
      "  # longer texts are cut\n",
      sizes.has_validation ? "  shuffle_seed: 0  # classes may come one after another\n" : "",
      tokenizer_lines(facts), "\n");
}

/// Sources and targets, likewise.
std::string source_data(const std::string& key, const std::string& split, const DataFacts& data,
                        const DraftFacts& facts, const Sizes& sizes) {
  const std::string context = data.context.empty() ? "" : cat(" {", data.context, "}");
  return cat(key, ":\n  _target_: ", kComponents, "datasets.llm.seq2seq.make_seq2seq_dataset\n",
             "  dataset_name: ", scalar(data.name), "\n  split: ", scalar(split),
             "\n  source_template: ", scalar(cat("{", data.question, "}", context)),
             "  # what the model reads\n  target_key: ", scalar(data.answer),
             "  # what it writes\n  seq_length: ", sizes.sequence,
             "  # longer sources and targets are cut\n", tokenizer_lines(facts), "\n");
}

/// Queries with passages.
std::string query_data(const DataFacts& data, const DraftFacts& facts) {
  constexpr int64_t kMostPassages = 5;
  return cat("dataset:\n  _target_: ", kComponents,
             "datasets.llm.retrieval_dataset.RetrievalDatasetConfig\n  data_dir_list: ",
             scalar(data.name), "\n  n_passages: ", std::min(data.num_wrong + 1, kMostPassages),
             "  # the one that answers a query, and others\n", tokenizer_lines(facts), "\n");
}

std::string data_sections(const DraftRequest& request, const DraftFacts& facts,
                          const Sizes& sizes) {
  if (!facts.data) return mock_data(sizes);
  check_data_for(request, *facts.data, facts.model.reads_sources);
  switch (facts.data->kind) {
    case DataKind::kPlainText:
    case DataKind::kTextRows:
      return text_data(*facts.data, facts, sizes);
    case DataKind::kTokens:
      return token_data(*facts.data, facts, sizes);
    case DataKind::kQueries:
      return query_data(*facts.data, facts);
    case DataKind::kConversations:
    case DataKind::kColumns:
    case DataKind::kClasses:
      break;
  }
  const bool has_classes = facts.data->kind == DataKind::kClasses;
  const auto section = has_classes                 ? class_data
                       : facts.model.reads_sources ? source_data
                                                   : row_data;
  if (sizes.has_validation && has_classes) {  // by numbers, before which rows are shuffled
    const int64_t border = *facts.data->num_rows * 95 / 100;
    return cat(
        section("dataset", cat("train[:", border, "]"), *facts.data, facts, sizes),
        "# The rows that are not trained on.\n",
        section("validation_dataset", cat("train[", border, ":]"), *facts.data, facts, sizes));
  }
  if (!sizes.has_validation) return section("dataset", "train", *facts.data, facts, sizes);
  return cat(section("dataset", "train[:95%]", *facts.data, facts, sizes),
             "# The rows that are not trained on.\n",
             section("validation_dataset", "train[95%:]", *facts.data, facts, sizes));
}

std::string loader(const DraftFacts& facts, const Sizes& sizes) {
  if (!facts.data) {
    return "dataloader:\n  _target_: torch.utils.data.DataLoader\n  batch_size: null\n\n";
  }
  const std::string target = "  _target_: torchdata.stateful_dataloader.StatefulDataLoader\n";
  const bool is_in_order = facts.data->kind == DataKind::kTokens;  // a shuffled one already
  if (facts.data->kind == DataKind::kQueries) {
    return cat("dataloader:\n", target,
               "  shuffle: true\n  collate_fn:\n    _target_: ", kComponents,
               "datasets.llm.BiEncoderCollator\n    q_max_len: ", sizes.sequence,
               "  # longer queries are cut\n    p_max_len: ", sizes.sequence,
               "\n    query_prefix: \"query:\"  # what they begin with, here and in use\n"
               "    passage_prefix: \"passage:\"\n\n");
  }
  return cat("dataloader:\n", target, is_in_order ? "\n" : "  shuffle: true\n\n",
             sizes.has_validation ? cat("validation_dataloader:\n", target, "\n") : std::string());
}

std::string losses(const std::string& task) {
  const std::string distillation =
      task == "distill" ? cat("# Half of the loss is the labels', half the teacher's.\n"
                              "kd_ratio: 0.5\nkd_loss_fn:\n  _target_: ",
                              kComponents, "loss.kd_loss.KDLoss\n  temperature: 1.0\n\n")
                        : std::string();
  return cat(distillation, "loss_fn:\n  _target_: ", kComponents,
             "loss.masked_ce.MaskedCrossEntropy\n\n");
}

std::string optimizer(const DraftRequest& request, const Sizes& sizes) {
  const bool is_pretraining = request.task == "pretrain";
  return cat("optimizer:\n  _target_: torch.optim.AdamW\n  lr: ", format_scientific(sizes.lr, 1),
             "  # halve it when the loss jumps, double it when it barely falls\n"
             "  betas: [0.9, ",
             is_pretraining ? "0.95" : "0.999",
             "]\n  weight_decay: ", is_pretraining ? "0.1" : "0.01", "\n\n");
}

std::string ending(const DraftRequest& request, const Sizes& sizes) {
  if (request.task == "benchmark") return "checkpoint:\n  enabled: false\n";
  const size_t slash = request.output.rfind('/');
  std::string stem = slash == std::string::npos ? request.output : request.output.substr(slash + 1);
  stem = stem.substr(0, stem.rfind('.'));
  return cat("lr_scheduler:\n  lr_decay_style: cosine\n  lr_warmup_steps: ", sizes.warmup,
             "\n\ncheckpoint:\n  checkpoint_dir: ", scalar(cat("checkpoints/", stem)),
             is_adapting(request.task)
                 ? "\n"
                 : "\n  save_consolidated: final  # a Hugging Face folder at the end\n");
}

}  // namespace

std::string draft_text(const DraftRequest& request, const DraftFacts& facts) {
  const bool is_benchmark = request.task == "benchmark";
  const bool reads_weights = !is_benchmark && request.task != "pretrain";
  if (reads_weights && !facts.model.has_weights) {
    throw UserError(cat("--model ", request.model, " has no weights (safetensors), which --task ",
                        request.task, " begins with; --task pretrain draws them at random"));
  }
  if (facts.teacher && !facts.teacher->has_weights) {
    throw UserError(cat("--teacher ", request.teacher, " has no weights (safetensors)"));
  }
  const Sizes sizes = sizes_of(request, facts);
  std::string text = cat(header(request, facts), "recipe: ", recipe_class(request.task), "\n\n");
  if (is_benchmark) text += "benchmark:\n  warmup_steps: 2\n\n";
  const bool has_queries = request.task == "embed";
  if (has_queries)
    text += "temperature: 0.02  # smaller: the nearest wrong passages count more\n\n";
  text += schedule(request, sizes);
  text += model_section("model", facts.model, request.task);
  if (request.task == "classify") text += class_lines(facts.data->classes);
  if (has_queries) text += embedding_lines(facts);
  text += "\n";
  if (facts.teacher) {
    text += cat(model_section("teacher_model", *facts.teacher, request.task), "\n");
  }
  text += adapters(request.task);
  text += "distributed:\n  strategy: fsdp2  # weights and optimizer are split over the ranks\n\n";
  text += data_sections(request, facts, sizes);
  text += loader(facts, sizes);
  if (request.task != "classify" && !has_queries) text += losses(request.task);
  text += optimizer(request, sizes);
  return text + ending(request, sizes);
}

}  // namespace automodel::setup
