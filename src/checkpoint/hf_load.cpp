#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "checkpoint/hf_folder.h"
#include "core/error.h"
#include "core/parallel.h"
#include "tensor/dtype.h"

namespace automodel::checkpoint {

namespace {

constexpr std::array<std::string_view, 7> kBasePrefixes = {
    "model.", "transformer.", "gpt_neox.", "backbone.", "bert.", "roberta.", "distilbert."};

/// Whether a folder's tensor is one of those that are skipped, be it that the folder leaves the
/// prefix of the base out, as a model without a head is saved.
bool is_skipped(const std::string& name, const std::vector<std::string>& prefixes) {
  return has_prefix(name, prefixes) ||
         std::ranges::any_of(kBasePrefixes, [&](std::string_view base) {
           return has_prefix(cat(base, name), prefixes);
         });
}

/// Buffers that older versions of transformers saved and that are computed here.
bool is_known_buffer(std::string_view name) {
  return std::ranges::any_of(std::array{"rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias",
                                        ".attention.bias", ".attention.masked_bias"},
                             [&](const char* end) { return name.ends_with(end); });
}

/// Floats, and the whole numbers of tables.
bool is_readable(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf ||
         dtype == at::kDouble || dtype == at::kLong || dtype == at::kInt;
}

/// The folder's name of a model's tensor, or of the tensor that is read instead.
std::optional<std::string> find_name_or_stand_in(const HfFolder& folder, const std::string& name,
                                                 const LoadOptions& options) {
  auto found = find_name(folder, name);
  const auto stand_in = options.stand_ins.find(name);
  if (!found && stand_in != options.stand_ins.end()) found = find_name(folder, stand_in->second);
  return found;
}

/// How the tensors of a model and a folder match.
struct Match {
  std::unordered_map<std::string, HfFolder::Place> places;  // by the model's names
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> misshapen;   // with both shapes
  std::vector<std::string> unreadable;  // with the dtype
  std::vector<std::string> skipped;
  std::string embedding;       // the model's name of it, "" when there is none
  std::string made_head;       // the head that comes from the embedding, "" when none does
  std::string redundant_head;  // the head of a tied model that the file holds, "" for none

  std::vector<std::string> findings() const {
    std::vector<std::string> texts;
    const auto add = [&](const char* what, const std::vector<std::string>& names) {
      if (!names.empty()) texts.push_back(cat(what, " ", count_and_first(names)));
    };
    add("missing", missing);
    add("not in the model", unexpected);
    add("of another shape", misshapen);
    add("of a dtype that is not read", unreadable);
    return texts;
  }
};

std::string find_embedding(const tensor::KeyMap& keys) {
  const auto found =
      std::ranges::find_if(keys, [](const auto& key) { return is_embedding_name(key.name); });
  return found == keys.end() ? "" : found->name;
}

void add_place(Match& match, const tensor::ParameterPart& key, const HfFolder::Place& place) {
  const TensorEntry& entry = *place.entry;
  if (entry.shape != key.shape) {
    match.misshapen.push_back(cat(key.name, " is [", join(entry.shape), "] in the file and [",
                                  join(key.shape), "] in the config"));
  } else if (!is_readable(entry.dtype)) {
    match.unreadable.push_back(cat(key.name, " is ", tensor::safetensors_dtype_name(entry.dtype)));
  }
  match.places[key.name] = place;
}

Match match_weights(const HfFolder& folder, const tensor::KeyMap& keys,
                    const LoadOptions& options) {
  Match match;
  match.embedding = find_embedding(keys);
  std::unordered_set<std::string> used;
  const tensor::ParameterPart* absent_head = nullptr;
  const bool has_head =
      std::ranges::any_of(keys, [](const auto& key) { return is_head_name(key.name); });
  for (const tensor::ParameterPart& key : keys) {
    if (has_prefix(key.name, options.skipped_prefixes)) {
      match.skipped.push_back(key.name);
      continue;
    }
    std::optional<std::string> name = find_name_or_stand_in(folder, key.name, options);
    // A folder may have either of two tied tensors.
    const bool is_tied = !has_head && is_embedding_name(key.name);
    if (!name && is_tied) name = find_name_or_tied(folder, key.name);
    if (name) {
      const HfFolder::Place place = *folder.find(*name);
      used.insert(place.entry->name);
      add_place(match, key, place);
    } else if (is_head_name(key.name)) {
      absent_head = &key;
    } else {
      match.missing.push_back(key.name);
    }
  }
  const auto embedding = match.places.find(match.embedding);
  if (absent_head != nullptr && embedding != match.places.end()) {
    match.made_head = absent_head->name;
    add_place(match, *absent_head, HfFolder::Place(embedding->second));
  } else if (absent_head != nullptr) {
    match.missing.push_back(absent_head->name);
  }
  for (const std::string& name : folder.names()) {
    if (used.contains(name) || is_known_buffer(name) || is_skipped(name, options.skipped_prefixes))
      continue;
    if (is_head_name(name) && !has_head && embedding != match.places.end() &&
        folder.find(name)->entry->shape == embedding->second.entry->shape) {
      match.redundant_head = name;
    } else {
      match.unexpected.push_back(name);
    }
  }
  return match;
}

/// A tied model's file may hold the head once more, but then it must be the embedding.
void check_redundant_head(const HfFolder& folder, const std::string& head_name,
                          const HfFolder::Place& embedding) {
  constexpr int64_t kPiece = int64_t{1} << 18;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const HfFolder::Place head = *folder.find(head_name);
  const auto options = at::TensorOptions().dtype(embedding.entry->dtype);
  const int64_t numel = head.entry->numel();
  const at::Tensor a = at::empty({std::min(kPiece, numel)}, options);
  const at::Tensor b = at::empty({std::min(kPiece, numel)}, options);
  for (int64_t first = 0; first < numel; first += kPiece) {
    const int64_t count = std::min(kPiece, numel - first);
    folder.read_elements(head, first, a.narrow(0, 0, count));
    folder.read_elements(embedding, first, b.narrow(0, 0, count));
    if (std::memcmp(a.data_ptr(), b.data_ptr(), static_cast<size_t>(count) * a.itemsize()) != 0) {
      throw InputError(cat("weights in ", folder.path(), " do not fit the config: ", head_name,
                           " differs from ", embedding.entry->name,
                           ", but the config ties them (tie_word_embeddings)"));
    }
  }
}

}  // namespace

bool is_head_name(std::string_view name) {
  return name == "lm_head.weight" || name == "head.weight" || name == "embed_out.weight" ||
         name == "output.weight" || name == "transformer.output_layer.weight" ||
         name == "model.transformer.ff_out.weight" || name.ends_with(".lm_head.weight");
}

bool is_embedding_name(std::string_view name) {
  return std::ranges::any_of(
      std::array{"embed_tokens.weight", "wte.weight", "embed.weight", "embed_in.weight",
                 "shared.weight", "transformer.word_embeddings.weight",
                 "transformer.embedding.word_embeddings.weight", "model.tok_embeddings.weight",
                 "model.word_embeddings.weight", "backbone.embeddings.weight"},
      [&](const char* own) { return name == own || name.ends_with(cat(".", own)); });
}

std::optional<std::string> find_name(const HfFolder& folder, const std::string& name) {
  if (folder.find(name)) return name;
  for (const std::string_view prefix : kBasePrefixes) {
    if (name.starts_with(prefix)) {
      const std::string bare = name.substr(prefix.size());
      if (folder.find(bare)) return bare;
    }
    const std::string longer = cat(prefix, name);
    if (folder.find(longer)) return longer;
  }
  return std::nullopt;
}

std::optional<std::string> find_name_or_tied(const HfFolder& folder, const std::string& name) {
  if (auto found = find_name(folder, name)) return found;
  const bool is_head = is_head_name(name);
  if (!is_head && !is_embedding_name(name)) return std::nullopt;
  const auto other =
      std::ranges::find_if(folder.names(), is_head ? is_embedding_name : is_head_name);
  return other == folder.names().end() ? std::nullopt : std::optional(*other);
}

std::vector<std::string> check_weights(const HfFolder& folder, const tensor::KeyMap& keys,
                                       const LoadOptions& options) {
  return match_weights(folder, keys, options).findings();
}

LoadReport load_weights(const HfFolder& folder, const tensor::KeyMap& keys,
                        std::span<const tensor::FlatShard> shards, const LoadOptions& options) {
  const Match match = match_weights(folder, keys, options);
  const std::vector<std::string> findings = match.findings();
  if (!findings.empty()) {
    throw InputError(
        cat("weights in ", folder.path(), " do not fit the config:\n  ", join(findings, "\n  ")));
  }
  if (!match.redundant_head.empty()) {
    check_redundant_head(folder, match.redundant_head, match.places.at(match.embedding));
  }
  if (!match.made_head.empty() && options.reporter != nullptr) {
    options.reporter->warning(
        cat(folder.path(), ": no ", match.made_head, "; it is made from ", match.embedding));
  }
  struct Task {
    const tensor::FlatShard* shard;
    const tensor::FlatSegment* segment;
    HfFolder::Place place;
  };
  std::vector<Task> tasks;
  LoadReport report;
  report.skipped = match.skipped;
  for (const tensor::FlatShard& shard : shards) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      const auto place = match.places.find(segment.fqn);
      if (place == match.places.end() || segment.spec.numel() == 0) continue;
      AM_CHECK(segment.spec.global_shape == place->second.entry->shape, segment.fqn);
      tasks.push_back({&shard, &segment, place->second});
      report.num_bytes += place->second.num_stored_bytes(segment.spec.numel());
      report.num_dequantized += place->second.quantized != nullptr ? 1 : 0;
    }
  }
  report.num_tensors = static_cast<int64_t>(tasks.size());
  // Largest first, so that no thread is left with a large one at the end.
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {
    return a.segment->spec.numel() > b.segment->spec.numel();
  });
  run_tasks(tasks.size(), options.num_threads, [&](size_t i) {
    const Task& task = tasks[i];
    folder.read_shard(task.place, task.segment->spec, task.shard->view(*task.segment));
    if (options.progress != nullptr) {
      *options.progress += task.place.num_stored_bytes(task.segment->spec.numel());
    }
  });
  return report;
}

}  // namespace automodel::checkpoint
