#include "models/catalog.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "core/error.h"
#include "models/causal_lm.h"
#include "models/decoder/classifier.h"
#include "models/decoder/decoder_model.h"
#include "models/decoder/embedder.h"
#include "models/families/families.h"
#include "models/named_class.h"

namespace automodel::models {

namespace {

using decoder::ConfigReader;
using decoder::Family;

const Family* find(const Json& hf_config) {
  const std::string architecture = named_class(hf_config);
  const std::string model_type = hf_config.get("model_type", "");
  for (const Family* family : decoder::kFamilies) {
    const bool is_match =
        architecture.empty()
            ? family->model_type == model_type
            : family->architecture == architecture ||
                  family->upstream.architecture == architecture ||
                  family->classifier == architecture ||
                  std::ranges::find(family->bases, architecture) != family->bases.end();
    if (is_match) return family;
  }
  const auto is_of_headless = [&](const Family* family) {
    return family->model_type == model_type && architecture == decoder::headless_class(*family);
  };
  const auto found = std::ranges::find_if(decoder::kFamilies, is_of_headless);
  return found == std::ranges::end(decoder::kFamilies) ? nullptr : *found;
}

/// The family's options from its config.json, including the recipe's moe_overrides in it.
decoder::DecoderConfig read(const Family& family, ConfigReader& reader) {
  decoder::DecoderConfig config = decoder::read_options(family, reader);
  if (reader.has("moe_overrides") && !(config.moe && config.moe->has_correction_bias)) {
    reader.problem(cat("moe_overrides: a ", family.architecture, " has no correction to move"));
  }
  const std::string model_type = reader.json().get("model_type", "");
  const auto is_of_type = [&](const Family* each) { return each->model_type == model_type; };
  const auto other = std::ranges::find_if(decoder::kFamilies, is_of_type);
  if (model_type != family.model_type && other != std::ranges::end(decoder::kFamilies)) {
    reader.problem(cat("architectures names a ", family.architecture, ", but model_type '",
                       model_type, "' is that of a ", (*other)->architecture));
  }
  return config;
}

std::string unknown_reason(const Json& hf_config) {
  const std::string architecture = named_class(hf_config);
  if (!architecture.empty()) {
    const std::vector<std::string> known = known_architectures();
    return cat("the model class ", architecture, " is not built in this version",
               did_you_mean(architecture, known), "; built: ", join(known, ", "));
  }
  std::vector<std::string> types;
  for (const Family* family : decoder::kFamilies) types.emplace_back(family->model_type);
  std::sort(types.begin(), types.end());
  const std::string model_type = hf_config.get("model_type", "");
  if (model_type.empty()) {
    return cat("config.json has neither architectures nor model_type; built: ", join(types, ", "));
  }
  return cat("the model type '", model_type, "' is not built in this version",
             did_you_mean(model_type, types), "; built: ", join(types, ", "));
}

}  // namespace

FamilyCheck find_family(const Json& hf_config) {
  if (!hf_config.is_object()) return {false, "", "config.json does not hold an object"};
  if (const Family* family = find(hf_config)) {
    return {true, std::string(family->architecture), ""};
  }
  return {false, named_class(hf_config), unknown_reason(hf_config)};
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Family* family : decoder::kFamilies) names.emplace_back(family->architecture);
  std::sort(names.begin(), names.end());
  return names;
}

std::string classifier_of(const Json& hf_config) {
  const Family* family = hf_config.is_object() ? find(hf_config) : nullptr;
  return family == nullptr ? "" : std::string(family->classifier);
}

bool exchanges_expert_factors(const Json& hf_config) {
  const Family* family = hf_config.is_object() ? find(hf_config) : nullptr;
  return family != nullptr && family->exchanges_expert_factors;
}

ClassHead class_head_of(const Json& hf_config) {
  if (classifier_of(hf_config).empty()) return {};
  const Family& family = *find(hf_config);
  return {decoder::class_head_modules(family), std::string(family.names.classes)};
}

std::vector<std::string> class_head_modules() {
  std::set<std::string> names;
  for (const Family* family : decoder::kFamilies) {
    if (family->classifier.empty()) continue;
    std::ranges::move(decoder::class_head_modules(*family), std::inserter(names, names.end()));
  }
  return {names.begin(), names.end()};
}

int64_t num_token_types(const Json& hf_config) {
  if (!is_encoder(hf_config)) return 0;
  ConfigReader reader(hf_config);
  return find(hf_config)->read_config(reader).num_token_types;
}

bool reads_sources(const Json& hf_config) {
  const Family* family = hf_config.is_object() ? find(hf_config) : nullptr;
  return family != nullptr && family->is_encoder_decoder;
}

bool is_encoder(const Json& hf_config) {
  const Family* family = hf_config.is_object() ? find(hf_config) : nullptr;
  return family != nullptr && !family->names.pooler.empty();
}

bool is_classifier(const Json& hf_config) {
  const Family* family = hf_config.is_object() ? find(hf_config) : nullptr;
  return family != nullptr && decoder::is_classifier(*family, hf_config);
}

bool makes_embeddings(const Json& hf_config) {
  return hf_config.is_object() && find(hf_config) != nullptr && decoder::is_embedder(hf_config);
}

std::string embedder_of(const Json& hf_config) {
  const Family* family = hf_config.is_object() ? find(hf_config) : nullptr;
  if (family == nullptr || family->build != nullptr) return "";
  return decoder::headless_class(*family);
}

std::optional<int64_t> num_routed_experts(const Json& hf_config) {
  if (!hf_config.is_object() || !find_family(hf_config).is_known) return std::nullopt;
  ConfigReader reader(hf_config);
  const decoder::DecoderConfig config = find(hf_config)->read_config(reader);
  return config.moe ? config.moe->n_routed_experts : 0;
}

std::optional<int64_t> vocabulary_size(const Json& hf_config) {
  if (!hf_config.is_object() || !find_family(hf_config).is_known) return std::nullopt;
  ConfigReader reader(hf_config);
  return find(hf_config)->read_config(reader).vocab_size;
}

std::optional<int64_t> encoder_positions(const Json& hf_config) {
  if (!is_encoder(hf_config)) return std::nullopt;
  ConfigReader reader(hf_config);
  const decoder::DecoderConfig config = find(hf_config)->read_config(reader);
  if (!config.has_learned_positions) return std::nullopt;
  return config.max_positions;
}

bool sees_later_tokens(const Json& hf_config) {
  if (!hf_config.is_object() || !find_family(hf_config).is_known) return false;
  ConfigReader reader(hf_config);
  const decoder::DecoderConfig config = find(hf_config)->read_config(reader);
  return !config.is_causal && !config.pooler && !decoder::is_embedder(hf_config);
}

bool sees_all_earlier_tokens(const Json& hf_config) {
  if (!hf_config.is_object() || !find_family(hf_config).is_known) return false;
  const Family& family = *find(hf_config);
  ConfigReader reader(hf_config);
  const decoder::DecoderConfig config = family.read_config(reader);
  const auto is_plain = [](const decoder::LayerOptions& layer) {
    return layer.window == 0 && !layer.has_state() &&
           layer.compression == decoder::Compression::kNone;
  };
  return family.build == nullptr && config.is_causal && config.attention_softcap == 0 &&
         config.attention_dropout == 0 && !config.indexer && !config.compressed_attention &&
         !config.next_tokens && std::all_of(config.layers.begin(), config.layers.end(), is_plain);
}

int64_t num_next_tokens(const Json& hf_config) {
  const bool can_train = hf_config.is_object() && find_family(hf_config).is_known &&
                         find(hf_config)->trains_next_tokens;
  if (!can_train) return 0;
  ConfigReader reader(hf_config);
  const decoder::DecoderConfig config = find(hf_config)->read_config(reader);
  return config.next_tokens ? config.next_tokens->num_depths : 0;
}

namespace {

/// A name with one beginning, or a part that begins with a dot, exchanged for another.
std::string exchanged(std::string name, std::string_view from, std::string_view to) {
  if (from.empty()) return name;
  const size_t place = name.find(from);
  const bool is_there = from.front() == '.' ? place != std::string::npos : place == 0;
  return is_there ? name.replace(place, from.size(), to) : name;
}

}  // namespace

std::string name_in_modules(const Json& hf_config, std::string name) {
  const Family* family = hf_config.is_object() ? find(hf_config) : nullptr;
  if (family == nullptr) return name;
  for (const decoder::ModuleName& each : family->module_names) {
    name = exchanged(std::move(name), each.in_files, each.in_modules);
  }
  return name;
}

std::vector<std::string> twins_in_modules(const Json& hf_config, const std::string& name) {
  std::vector<std::string> twins;
  const Family* family = hf_config.is_object() ? find(hf_config) : nullptr;
  if (family == nullptr) return twins;
  for (const decoder::ModuleTwin& each : family->module_twins) {
    if (std::string twin = exchanged(name, each.module, each.twin); twin != name) {
      twins.push_back(std::move(twin));
    }
  }
  return twins;
}

std::string name_in_files(const Json& hf_config, std::string name) {
  const Family* family = hf_config.is_object() ? find(hf_config) : nullptr;
  if (family == nullptr) return name;
  for (const decoder::ModuleTwin& each : family->module_twins) {
    name = exchanged(std::move(name), each.twin, each.module);
  }
  for (const decoder::ModuleName& each : family->module_names) {
    name = exchanged(std::move(name), each.in_modules, each.in_files);
  }
  return name;
}

std::vector<std::string> names_in_recipes(const Json& hf_config, const std::string& name) {
  std::vector<std::string> names = {name};
  const Family* family = hf_config.is_object() ? find(hf_config) : nullptr;
  if (family == nullptr) return names;
  for (const decoder::ModuleAlias& alias : family->aliases) {
    if (alias.in_files.empty() || !name.ends_with(alias.in_files)) continue;
    names.push_back(cat(name.substr(0, name.size() - alias.in_files.size()), alias.in_recipes));
  }
  if (names.size() > 1) return names;
  if (std::string module = name_in_modules(hf_config, name); module != name) {
    names.push_back(std::move(module));
  }
  return names;
}

std::vector<std::string> check_config(const Json& hf_config) {
  const FamilyCheck check = find_family(hf_config);
  if (!check.is_known) return {check.reason};
  ConfigReader reader(hf_config);
  read(*find(hf_config), reader);
  return reader.problems();
}

std::shared_ptr<CausalLM> build_causal_lm(const Json& hf_config, at::ScalarType dtype) {
  const FamilyCheck check = find_family(hf_config);
  if (!check.is_known) throw UnsupportedError(check.reason);
  const Family& family = *find(hf_config);
  if (family.build != nullptr) return family.build(hf_config, dtype);
  ConfigReader reader(hf_config);
  decoder::DecoderConfig config = read(family, reader);
  if (!reader.problems().empty()) {
    throw InputError(
        cat("config.json of a ", family.architecture, ": ", join(reader.problems(), "; ")));
  }
  return std::make_shared<decoder::DecoderModel>(family, std::move(config), hf_config, dtype);
}

}  // namespace automodel::models
