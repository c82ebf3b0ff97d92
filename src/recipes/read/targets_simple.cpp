#include "recipes/read/targets_simple.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "config/bind.h"
#include "config/registry.h"
#include "config/schema.h"
#include "models/facts.h"
#include "recipes/read/classifier_labels.h"
#include "recipes/read/distillation_section.h"
#include "recipes/read/gpt2_builder.h"
#include "recipes/read/retrieval_section.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Target;

constexpr const char* kKDLoss = "nemo_automodel.components.loss.kd_loss.KDLoss";

template <typename Config>
LossMaker loss_maker(const char* name) {
  return [name](const Target& target, Diagnostics& diagnostics) {
    const Config config = config::bind<Config>(target.arguments, diagnostics);
    for (const auto& finding : check_reduction(config.reduction)) {
      diagnostics.error(*target.arguments.find(finding.key), finding.text);
    }
    LossSettings settings;
    settings.name = name;
    settings.ignore_index = config.ignore_index;
    if constexpr (requires { config.logit_softcapping; }) {
      if (config.logit_softcapping != 0) {
        diagnostics.unsupported(*target.arguments.find("logit_softcapping"),
                                "capping logits in the loss is not in this version; a model's own "
                                "final_logit_softcapping is");
      }
    }
    if constexpr (requires { config.label_smoothing; }) {
      if (config.label_smoothing != 0) {
        diagnostics.unsupported(*target.arguments.find("label_smoothing"),
                                "label smoothing is not in this version");
      }
    }
    return settings;
  };
}

template <typename Config>
void add_loss(config::TargetRegistry<LossMaker>& registry, const char* module, const char* name) {
  const std::string dotted = cat("nemo_automodel.components.loss.", module, ".", name);
  registry.add({.name = dotted,
                .aliases = {cat("nemo_automodel.components.loss.", name), name},
                .doc = "cross-entropy of labelled tokens",
                .options = config::schema_of<Config>()},
               loss_maker<Config>(name));
}

}  // namespace

config::TargetRegistry<LossMaker> loss_targets() {
  config::TargetRegistry<LossMaker> registry("loss");
  add_loss<MaskedCrossEntropyConfig>(registry, "masked_ce", "MaskedCrossEntropy");
  add_loss<FusedLinearCrossEntropyConfig>(registry, "linear_ce", "FusedLinearCrossEntropy");
  add_loss<ChunkedCrossEntropyConfig>(registry, "chunked_ce", "ChunkedCrossEntropy");
  add_loss<TEParallelCrossEntropyConfig>(registry, "te_parallel_ce", "TEParallelCrossEntropy");
  return registry;
}

config::TargetRegistry<AcceptedTarget> kd_loss_targets() {
  config::TargetRegistry<AcceptedTarget> registry("distillation loss");
  registry.add({.name = kKDLoss,
                .aliases = {"nemo_automodel.components.loss.KDLoss", "KDLoss"},
                .doc = "divergence of the student's distribution from the teacher's",
                .options = config::schema_of<KDLossConfig>()},
               {});
  return registry;
}

/// The builder's arguments. Of a model whose configuration the same keys change a token id may be a
/// list.
static Json gpt2_builder_schema() {
  Json schema = config::schema_of<Gpt2BuilderSection>();
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    Json& field = schema["properties"][key];
    for (const char* rule : {"type", "pattern", "minimum"}) field.erase(rule);
  }
  return schema;
}

config::TargetRegistry<ModelTarget> model_targets() {
  config::TargetRegistry<ModelTarget> registry("model");
  using Form = ModelTarget::Form;
  const auto add = [&](const char* name, const char* method, ModelTarget target, const char* doc) {
    const std::string of_class = cat("NeMoAutoModelFor", name, ".", method);
    registry.add({.name = cat("nemo_automodel.", of_class),
                  .aliases = {cat("nemo_automodel._transformers.", of_class),
                              cat("nemo_automodel._transformers.auto_model.", of_class),
                              cat("nemo_automodel.components._transformers.auto_model.", of_class),
                              cat("transformers.AutoModelFor", name, ".", method), of_class},
                  .doc = doc},
                 target);
  };
  constexpr const char* kFromPretrained = "from_pretrained";
  constexpr const char* kFromConfig = "from_config";
  add("CausalLM", kFromPretrained, {Form::kFromPretrained}, "weights of a Hugging Face folder");
  add("CausalLM", kFromConfig, {Form::kFromConfig}, "random weights for a configuration");
  constexpr const char* kClassifier = "SequenceClassification";
  add(kClassifier, kFromPretrained, {Form::kFromPretrained, true},
      "the same with a head for the classes of sequences");
  add(kClassifier, kFromConfig, {Form::kFromConfig, true},
      "random weights with a head for the classes of sequences");
  constexpr const char* kSeq2Seq = "Seq2SeqLM";
  add(kSeq2Seq, kFromPretrained, {.form = Form::kFromPretrained, .reads_sources = true},
      "the same of an encoder and a decoder");
  add(kSeq2Seq, kFromConfig, {.form = Form::kFromConfig, .reads_sources = true},
      "random weights of an encoder and a decoder");
  for (const auto& [method, form] : {std::pair(kFromPretrained, Form::kFromPretrained),
                                     std::pair(kFromConfig, Form::kFromConfig)}) {
    const std::string of_class = cat("NeMoAutoModelBiEncoder.", method);
    registry.add({.name = cat("nemo_automodel.", of_class),
                  .aliases = {cat("nemo_automodel._transformers.", of_class),
                              cat("nemo_automodel._transformers.auto_model.", of_class), of_class},
                  .doc = "a model without its head, which makes embeddings of texts"},
                 {.form = form, .makes_embeddings = true});
  }
  const struct {
    const char* name;
    const char* reason;
  } others[] = {
      {"NeMoAutoModelForImageTextToText", "vision-language models are not in this version"},
      {"NeMoAutoModelForMultimodalLM", "multimodal models are not in this version"},
      {"NeMoAutoModelCrossEncoder", "models that score pairs of texts are not in this version"},
  };
  for (const auto& other : others) {
    for (const char* method : {kFromPretrained, kFromConfig}) {
      registry.add_unsupported(cat("nemo_automodel.", other.name, ".", method), other.reason);
    }
  }
  registry.add({.name = "nemo_automodel.components.models.gpt2.build_gpt2_model",
                .aliases = {"build_gpt2_model"},
                .doc = "a GPT-2 with random weights, by its sizes",
                .options = gpt2_builder_schema()},
               {Form::kGpt2Builder});
  return registry;
}

config::TargetRegistry<CollateTarget> collate_targets() {
  config::TargetRegistry<CollateTarget> registry("collate_fn");
  registry.add({.name = "nemo_automodel.components.datasets.utils.default_collater",
                .aliases = {"default_collater", "default"},
                .doc = "pad to the longest sample"},
               CollateTarget::kPad);
  registry.add({.name = "torch.utils.data.default_collate",
                .aliases = {"torch.utils.data._utils.collate.default_collate",
                            "torch.utils.data.dataloader.default_collate"},
                .doc = "stack samples of equal length"},
               CollateTarget::kStack);
  const std::string llm = "nemo_automodel.components.datasets.llm.";
  const auto retrieval_names = [&](const char* name) {
    return std::vector<std::string>{cat(llm, "retrieval_collator.", name), name};
  };
  registry.add({.name = cat(llm, "BiEncoderCollator"),
                .aliases = retrieval_names("BiEncoderCollator"),
                .doc = "queries and passages as texts of their own"},
               CollateTarget::kQueriesAndPassages);
  registry.add_unsupported(cat(llm, "CrossEncoderCollator"),
                           "a query and a passage as one text are not in this version",
                           retrieval_names("CrossEncoderCollator"));
  for (const char* name : {"packed_sequence_thd_collater", "neat_packed_collater"}) {
    registry.add({.name = cat("nemo_automodel.components.datasets.utils.", name),
                  .aliases = {name},
                  .doc = "batches of packs; samples are padded to the longest"},
                 CollateTarget::kPad);
  }
  return registry;
}

config::TargetRegistry<AcceptedTarget> dataloader_targets() {
  config::TargetRegistry<AcceptedTarget> registry("dataloader");
  registry.add(
      {.name = "torchdata.stateful_dataloader.StatefulDataLoader",
       .aliases = {"torchdata.stateful_dataloader.stateful_dataloader.StatefulDataLoader",
                   "torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"},
       .doc = "batches with an exact position"},
      {});
  return registry;
}

config::TargetRegistry<AcceptedTarget> tokenizer_targets() {
  config::TargetRegistry<AcceptedTarget> registry("tokenizer");
  registry.add(
      {.name = "transformers.AutoTokenizer.from_pretrained",
       .aliases = {"nemo_automodel.NeMoAutoTokenizer.from_pretrained",
                   "nemo_automodel._transformers.auto_tokenizer.NeMoAutoTokenizer.from_pretrained",
                   "nemo_automodel._transformers.NeMoAutoTokenizer.from_pretrained"},
       .doc = "tokenizer.json of a folder"},
      {});
  return registry;
}

ClassPaths class_paths(const models::FamilyFacts& family, const char* file, std::string_view name) {
  const std::string package = cat("transformers.models.", family.module, ".");
  return {cat(package, file, "_", family.module, ".", name), cat(package, name)};
}

config::TargetRegistry<ModelConfigTarget> model_config_targets() {
  config::TargetRegistry<ModelConfigTarget> registry("model configuration");
  registry.add({.name = "transformers.AutoConfig.from_pretrained",
                .aliases = {"nemo_automodel._transformers.auto_config.NeMoAutoConfig."
                            "from_pretrained"},
                .doc = "config.json of a folder, with the other keys as changes"},
               ModelConfigTarget::kFolder);
  for (const models::FamilyFacts& family : models::family_facts()) {
    const std::string plain = cat("transformers.", family.config_class);
    const auto [in_file, in_module] = class_paths(family, "configuration", family.config_class);
    const auto method = [](const std::string& of) { return of + ".from_pretrained"; };
    std::vector<std::string> names = {in_module, in_file};
    if (!family.upstream_config_class.empty()) names.emplace_back(family.upstream_config_class);
    std::vector<std::string> methods;
    for (const std::string& name : names) methods.push_back(method(name));
    registry.add({.name = plain, .aliases = names, .doc = "the configuration itself"},
                 ModelConfigTarget::kInline);
    registry.add({.name = method(plain),
                  .aliases = methods,
                  .doc = "config.json of a folder, with the other keys as changes"},
                 ModelConfigTarget::kFolder);
  }
  return registry;
}

config::TargetRegistry<AcceptedTarget> recipe_targets() {
  config::TargetRegistry<AcceptedTarget> registry("recipe");
  const auto names = [](const char* module, const char* name) {
    return std::vector<std::string>{cat("nemo_automodel.recipes.", module, ".", name)};
  };
  registry.add({.name = "TrainFinetuneRecipeForNextTokenPrediction",
                .aliases = names("llm.train_ft", "TrainFinetuneRecipeForNextTokenPrediction"),
                .doc = "fine-tuning and pretraining of causal language models"},
               {});
  registry.add({.name = kClassificationRecipe,
                .aliases = names("llm.train_seq_cls", kClassificationRecipe),
                .doc = "fine-tuning of models that classify sequences"},
               {});
  registry.add({.name = kDistillationRecipe,
                .aliases = names("llm.kd", kDistillationRecipe),
                .doc = "a causal language model that learns from a larger one beside its labels"},
               {});
  registry.add({.name = "BenchmarkingRecipeForNextTokenPrediction",
                .aliases = names("llm.benchmark", "BenchmarkingRecipeForNextTokenPrediction"),
                .doc = "the time of training steps, and how much of a device they use"},
               {});
  registry.add({.name = kBlockDiffusionRecipe,
                .aliases = names("dllm.train_ft", kBlockDiffusionRecipe),
                .doc = "fine-tuning of DiffusionGemma by block diffusion"},
               {});
  registry.add({.name = kMaskedDiffusionRecipe,
                .aliases = names("dllm.train_ft", kMaskedDiffusionRecipe),
                .doc = "fine-tuning of LLaDA by masked diffusion"},
               {});
  registry.add(
      {.name = kBiEncoderRecipe,
       .aliases = {cat("nemo_automodel.recipes.retrieval.", kBiEncoderRecipe),
                   cat("nemo_automodel.recipes.retrieval.train_bi_encoder.", kBiEncoderRecipe)},
       .doc = "fine-tuning of models that make embeddings of texts, for search"},
      {});
  registry.add_unsupported("TrainCrossEncoderRecipe",
                           "models that score pairs of texts are not in this version",
                           names("retrieval.train_cross_encoder", "TrainCrossEncoderRecipe"));
  registry.add_unsupported("FinetuneRecipeForVLM", "vision-language models are not in this version",
                           names("vlm.finetune", "FinetuneRecipeForVLM"));
  return registry;
}

LossSettings read_loss(const config::Node* node, Diagnostics& diagnostics) {
  if (node == nullptr || node->is_null()) return {};
  const auto target = config::split_target(*node, diagnostics);
  if (!target) return {};
  const auto registry = loss_targets();
  const LossMaker* maker = registry.resolve_maker(*target, diagnostics);
  return maker == nullptr ? LossSettings{} : (*maker)(*target, diagnostics);
}

}  // namespace automodel::recipes
