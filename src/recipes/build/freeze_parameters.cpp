#include "recipes/build/freeze_parameters.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "core/error.h"
#include "core/python_pattern.h"
#include "core/text.h"
#include "core/utf8.h"
#include "models/catalog.h"
#include "moe/counting_router.h"
#include "nn/layers.h"

namespace automodel::recipes {

namespace {

/// The expressions of a key, and which of them have been found in a name.
class Expressions final {
 public:
  Expressions(const char* key, const std::vector<std::string>& texts,
              std::vector<FreezeFinding>& findings)
      : key_(key), findings_(findings) {
    for (const std::string& text : texts) {
      try {
        all_.push_back({text, PythonPattern(text)});
      } catch (const UserError& error) {
        add(text, error);
      }
    }
  }

  bool is_empty() const { return all_.empty(); }

  bool are_in(const std::string& name) {
    bool is_found = false;
    for (Expression& each : all_) {
      try {
        if (!each.pattern.is_in(name)) continue;
      } catch (const UserError& error) {
        if (!each.has_failed) add(each.text, error);
        each.has_failed = true;
        continue;
      }
      each.is_used = true;
      is_found = true;
    }
    return is_found;
  }

  /// A finding for each expression that is in no name.
  void tell_idle() {
    for (const Expression& each : all_) {
      if (each.is_used || each.has_failed) continue;
      findings_.push_back(
          {key_, cat("'", each.text, "' is in no parameter's name"), false, each.text});
    }
  }

 private:
  struct Expression {
    std::string text;
    PythonPattern pattern;
    bool is_used = false;
    bool has_failed = false;
  };

  void add(const std::string& text, const UserError& error) {
    constexpr size_t kShown = 200;  // bytes of an expression
    findings_.push_back({key_,
                         cat("'", shortened(text, kShown),
                             "' is not a regular expression that can be used: ", error.what()),
                         false, text});
  }

  const char* key_;
  std::vector<FreezeFinding>& findings_;
  std::vector<Expression> all_;
};

/// Keeps a router's correction as it is, which no optimizer trains, if the parameter is one.
void keep_correction(models::CausalLM& model, const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  if (parameter.substr(dot + 1) != moe::kCorrectionName) return;
  const auto modules = model.named_modules("", false);
  const auto* const module = modules.find(parameter.substr(0, dot));
  auto* const router =
      module == nullptr ? nullptr : dynamic_cast<moe::CountingRouter*>(module->get());
  if (router != nullptr) router->keep_correction();
}

std::set<std::string> embedding_weights(const models::CausalLM& model) {
  std::set<std::string> names;
  for (const auto& item : model.named_modules("", false)) {
    if (dynamic_cast<const nn::Embedding*>(item.value().get()) == nullptr) continue;
    for (const auto& parameter : item.value()->named_parameters(false)) {
      names.insert(cat(item.key(), ".", parameter.key()));
    }
  }
  return names;
}

}  // namespace

std::vector<FreezeFinding> freeze_parameters(models::CausalLM& model,
                                             const FreezeSection& section) {
  std::vector<FreezeFinding> findings;
  if (section.freeze_language_model) {
    findings.push_back({"freeze_language_model",
                        "freeze_language_model: true leaves nothing to train: this version trains "
                        "language models alone; trainable_parameters names what is trained"});
  }
  Expressions frozen("frozen_parameters", section.frozen_parameters, findings);
  Expressions trainable("trainable_parameters", section.trainable_parameters, findings);
  const std::set<std::string> embeddings =
      section.freeze_embeddings ? embedding_weights(model) : std::set<std::string>();
  struct Split {
    std::vector<std::string> trained, frozen;  ///< names in files of what one parameter holds
  };
  std::map<std::string, Split> parameters;
  for (const tensor::ParameterPart& part : model.key_map()) {
    // Both are asked: each tells which of its expressions are in no name.
    const bool is_chosen = trainable.are_in(part.name) || section.trainable_parameters.empty();
    const bool is_named = frozen.are_in(part.name);
    const bool is_frozen = !is_chosen || is_named || embeddings.contains(part.parameter);
    Split& split = parameters[part.parameter];
    (is_frozen ? split.frozen : split.trained).push_back(part.name);
  }
  frozen.tell_idle();
  trainable.tell_idle();
  const char* key =
      section.trainable_parameters.empty() ? "frozen_parameters" : "trainable_parameters";
  bool is_any_trained = false;
  auto named = model.named_parameters();
  for (const auto& [parameter, split] : parameters) {
    if (split.frozen.empty()) {
      is_any_trained = is_any_trained || named[parameter].requires_grad();
      continue;
    }
    if (!split.trained.empty()) {
      findings.push_back({key,
                          cat(split.frozen[0], " and ", split.trained[0],
                              " are one matrix here: freezing one of them alone is not in this "
                              "version"),
                          true});
      return findings;
    }
    named[parameter].set_requires_grad(false);
    keep_correction(model, parameter);
  }
  if (!is_any_trained && findings.empty()) {
    findings.push_back({key, "no parameter is left to train"});
  }
  return findings;
}

void freeze_or_throw(models::CausalLM& model, const FreezeSection& section) {
  const std::vector<FreezeFinding> findings = freeze_parameters(model, section);
  if (findings.empty()) return;
  const std::string text = cat("freeze_config.", findings[0].key, ": ", findings[0].text);
  if (findings[0].is_unsupported) throw UnsupportedError(text);
  throw UserError(text);
}

std::string frozen_text(const Json& hf_config, const FreezeSection& section) {
  const auto whole = models::build_causal_lm(hf_config, at::kFloat);
  freeze_or_throw(*whole, section);
  constexpr size_t kShown = 4;
  std::vector<std::string> names;
  const auto parameters = whole->named_parameters();
  for (const tensor::ParameterPart& part : whole->key_map()) {
    if (!parameters[part.parameter].requires_grad()) names.push_back(part.name);
  }
  return cat("frozen tensors ", count_and_first(names, kShown), " of ", whole->key_map().size());
}

}  // namespace automodel::recipes
