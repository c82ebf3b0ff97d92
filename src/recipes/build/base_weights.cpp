#include "recipes/build/base_weights.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "core/is_one_of.h"
#include "peft/adapter_keys.h"
#include "peft/quantize_base.h"
#include "tensor/dtype.h"
#include "tensor/random.h"

namespace automodel::recipes {

namespace {

/// Reports in one line the tensors that are not part of this model and are saved unchanged.
void report_kept_tensors(const checkpoint::HfFolder& folder,
                         const std::vector<std::string>& prefixes, Reporter& reporter) {
  int64_t count = 0;
  for (const std::string& name : folder.names()) {
    count += checkpoint::has_prefix(name, prefixes) ? 1 : 0;
  }
  if (count == 0) return;
  reporter.info(cat("weights: ", count, " tensors of ", join(prefixes, " and "),
                    " are not trained; they are saved as they came"));
}

}  // namespace

at::ScalarType storage_dtype(const ModelRecipe& model) {
  if (model.dtype) return *model.dtype;
  const bool has_weights = path_exists(path_join(model.folder, "model.safetensors")) ||
                           path_exists(path_join(model.folder, "model.safetensors.index.json"));
  if (has_weights) return checkpoint::HfFolder::open(model.folder).storage_dtype();
  return checkpoint::stated_dtype(model.hf_config).value_or(at::kFloat);
}

namespace {

/// Name prefixes of the model's tensors that are drawn because the folder has none of them.
std::vector<std::string> absent_parts(const models::CausalLM& model,
                                      const checkpoint::HfFolder& folder) {
  std::vector<std::string> prefixes = model.drawn_if_absent();
  std::erase_if(prefixes, [&](const std::string& prefix) {
    return std::ranges::any_of(model.key_map(), [&](const tensor::ParameterPart& part) {
      return part.name.starts_with(prefix) && checkpoint::find_name(folder, part.name);
    });
  });
  return prefixes;
}

}  // namespace

std::string missing_beside_adapters(const models::CausalLM& model,
                                    const checkpoint::HfFolder& folder) {
  if (model.class_head().empty()) return "";
  std::vector<std::string> absent = absent_parts(model, folder);
  for (const std::string& module : model.saved_modules()) std::erase(absent, module + ".");
  if (absent.empty()) return "";
  return cat("weights in ", folder.path(), " have no tensors of ", join(absent, ", "),
             ": they would be drawn and stay as they are beside adapters, whose folder does not "
             "hold them; begin with a folder that has them, or train without peft");
}

checkpoint::LoadOptions load_options(const models::CausalLM& model,
                                     const checkpoint::HfFolder& folder) {
  checkpoint::LoadOptions options;
  options.skipped_prefixes = model.kept_prefixes();
  for (std::string& prefix : model.unused_prefixes()) {
    options.skipped_prefixes.push_back(std::move(prefix));
  }
  for (std::string& prefix : absent_parts(model, folder)) {
    options.skipped_prefixes.push_back(std::move(prefix));
  }
  options.stand_ins = model.stand_ins();
  return options;
}

void draw_weights(const std::vector<std::shared_ptr<models::CausalLM>>& parts,
                  const std::vector<tensor::FlatShard>& parameters, int64_t seed,
                  const std::function<bool(const std::string&)>& is_drawn) {
  std::map<std::string, tensor::InitRule> rules;
  for (const auto& part : parts) {
    for (const models::ParameterInit& init : part->initial_values()) {
      rules.emplace(init.parameter, init.rule);
    }
  }
  std::map<std::string_view, const tensor::ParameterPart*> tensors;
  for (const tensor::ParameterPart& part : parts[0]->key_map()) tensors.emplace(part.name, &part);
  for (const tensor::FlatShard& shard : parameters) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      if (peft::is_quantized_tensor(segment.fqn) || !is_drawn(segment.fqn)) continue;
      const auto found = tensors.find(segment.fqn);
      AM_CHECK(found != tensors.end(), segment.fqn);
      const auto rule = rules.find(found->second->parameter);
      AM_CHECK(rule != rules.end(), found->second->parameter);
      const tensor::RandomKey key(static_cast<uint64_t>(seed), segment.fqn);
      tensor::fill_initial_values(shard.view(segment), segment.spec, rule->second, key);
    }
  }
  peft::fill_quantized(*parts[0], parameters, [&](const peft::QuantizedMatrix& matrix) {
    if (!is_drawn(matrix.name)) return at::Tensor();
    const at::Tensor values =
        at::empty(matrix.floats.shape, at::TensorOptions().dtype(matrix.format.dtype));
    const tensor::RandomKey key(static_cast<uint64_t>(seed), matrix.name);
    tensor::fill_initial_values(values.view({-1}), tensor::ShardSpec::whole(matrix.floats.shape),
                                rules.at(matrix.floats.parameter), key);
    return values;
  });
}

namespace {

/// Reads the weights that are held in 4 bits, each one whole, one after another, except those left
/// out. Returns how many it read.
int64_t quantize_weights(const checkpoint::HfFolder& folder, const models::CausalLM& model,
                         const std::vector<tensor::FlatShard>& parameters,
                         const std::vector<std::string>& left_out, ByteCounter* progress) {
  return peft::fill_quantized(model, parameters, [&](const peft::QuantizedMatrix& matrix) {
    if (checkpoint::has_prefix(matrix.name, left_out)) return at::Tensor();
    const auto place = *folder.find(*checkpoint::find_name(folder, matrix.name));
    const at::Tensor values =
        at::empty(matrix.floats.shape, at::TensorOptions().dtype(matrix.format.dtype));
    folder.read_elements(place, 0, values);
    if (progress != nullptr) *progress += place.num_stored_bytes(values.numel());
    return values.to(parameters[0].buffer.device());
  });
}

}  // namespace

std::vector<std::string> load_base_weights(const std::string& folder, const models::CausalLM& model,
                                           const std::vector<tensor::FlatShard>& parameters,
                                           const std::vector<std::string>& left_out,
                                           Reporter& reporter, ByteCounter* progress) {
  const double begin = monotonic_seconds();
  const auto opened = checkpoint::HfFolder::open(folder);
  checkpoint::LoadOptions options = load_options(model, opened);
  options.reporter = &reporter;
  options.progress = progress;
  report_kept_tensors(opened, model.kept_prefixes(), reporter);
  std::vector<std::string> drawn = absent_parts(model, opened);
  std::erase_if(drawn, [&](const std::string& prefix) { return is_one_of(left_out, prefix); });
  for (const std::string& prefix : drawn) {
    reporter.warning(cat(folder, ": no tensors of ", prefix, "; they are drawn"));
  }
  options.skipped_prefixes.insert(options.skipped_prefixes.end(), left_out.begin(), left_out.end());
  const auto report = checkpoint::load_weights(opened, peft::base_keys(model), parameters, options);
  const int64_t num_quantized =
      quantize_weights(opened, model, parameters, options.skipped_prefixes, progress);
  if (num_quantized > 0) {
    reporter.info(cat("weights: ", num_quantized, " matrices are held in 4 bits"));
  }
  // The line above already reports weights that are held in 4 bits.
  const std::string dequantized =
      opened.quantization() && num_quantized == 0
          ? cat(" (", report.num_dequantized, " dequantized from ",
                checkpoint::method_name(opened.quantization()->method), ")")
          : "";
  reporter.info(cat("weights: ", report.num_tensors, " tensors", dequantized, ", ",
                    format_bytes(report.num_bytes), " from ", folder, " in ",
                    format_duration(monotonic_seconds() - begin)));
  drawn.insert(drawn.end(), left_out.begin(), left_out.end());
  return drawn;
}

}  // namespace automodel::recipes
