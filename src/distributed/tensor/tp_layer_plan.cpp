#include "distributed/tensor/tp_layer_plan.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "distributed/tensor/tp_layers.h"

namespace automodel::distributed {

namespace {

std::string short_name(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

/// "q_proj, k_proj, v_proj"
std::string short_names(const TpLayer& layer) {
  std::vector<std::string> names;
  for (const std::string& name : layer.hf_names) names.push_back(short_name(name));
  return join(names, ", ");
}

/// Checks one plan for one model.
class LayerPlanner final {
 public:
  LayerPlanner(const TpModel& model, const TpShardPlan& plan, const TpUse& use)
      : model_(model), plan_(plan), use_(use) {}

  TpLayerPlan run(torch::nn::Module& module) {
    check_model();
    if (!result_.findings.empty()) return std::move(result_);
    const std::vector<TpLayer> layers = find_tp_layers(module, model_.keys);
    for (const TpLayer& layer : layers) assign(layer);
    tie_head();
    for (const TpLayer& layer : layers) check_layer(layer);
    check_pairs(layers);
    check_matches();
    return std::move(result_);
  }

 private:
  void add(const std::string& pattern, const std::string& text) {
    const auto is_said = [&](const TpFinding& finding) {
      return finding.pattern == pattern && finding.text == text;
    };
    const bool is_known = std::any_of(result_.findings.begin(), result_.findings.end(), is_said);
    if (!is_known) result_.findings.push_back({pattern, text});
  }

  void check_model() {
    for (const std::string& reason : model_.plan.no_tp_reasons) {
      add("", cat(model_.architecture, " cannot be split over tensor-parallel ranks: ", reason));
    }
    for (const std::string& reason : model_.plan.no_sp_reasons) {
      if (!use_.sequence_parallel) break;
      add("", cat(model_.architecture, " cannot be split with sequence_parallel: ", reason));
    }
    try {
      validate_tp_mesh(model_, use_.tp_size);
    } catch (const UserError& error) {
      add("", error.what());
    }
    if (model_.vocab_size < use_.tp_size) {
      add("", cat("vocab_size (", model_.vocab_size, ") must be at least TP size (", use_.tp_size,
                  ")"));
    }
  }

  /// The plan's entry for a module: its full name takes precedence over patterns.
  const std::pair<const std::string, ParallelStyle>* entry_of(const std::string& name) {
    if (const auto exact = plan_.find(name); exact != plan_.end()) {
      matched_.insert(exact->first);
      return &*exact;
    }
    const std::pair<const std::string, ParallelStyle>* found = nullptr;
    for (const auto& entry : plan_) {
      if (!matches_module(entry.first, name)) continue;
      matched_.insert(entry.first);
      found = &entry;
    }
    return found;
  }

  void assign(const TpLayer& layer) {
    if (layer.hf_names.empty()) return;  // adapters alone, of a tied head
    const auto* first = entry_of(layer.hf_names[0]);
    bool is_alike = true;
    const std::string* shown = first != nullptr ? &first->first : nullptr;
    for (size_t i = 1; i < layer.hf_names.size(); ++i) {
      const auto* entry = entry_of(layer.hf_names[i]);
      if (entry != nullptr && shown == nullptr) shown = &entry->first;
      const bool is_same = (entry == nullptr) == (first == nullptr) &&
                           (entry == nullptr || entry->second == first->second);
      is_alike = is_alike && is_same;
    }
    if (!is_alike) {
      add(*shown, cat(short_names(layer), " are one product here and need the same style"));
      return;
    }
    if (first == nullptr) return;
    result_.styles[layer.fqn] = first->second;
    patterns_[layer.fqn] = first->first;
  }

  /// A tied head is the embedding, so an entry for one of them splits both.
  void tie_head() {
    const nn::ParallelPlan& plan = model_.plan;
    if (plan.head.empty()) {
      if (const auto* entry = entry_of("lm_head")) {
        if (entry->second.kind != StyleKind::kColwise) {
          add(entry->first, "the output head is split by rows of the vocabulary: use colwise");
        } else if (result_.styles
                       .try_emplace(plan.embedding,
                                    *translate_to_torch_parallel_style("rowwise_rep"))
                       .second) {
          patterns_[plan.embedding] = entry->first;
        }
      }
    }
    result_.splits_vocabulary =
        result_.styles.contains(plan.head.empty() ? plan.embedding : plan.head);
  }

  void check_layer(const TpLayer& layer) {
    const auto found = result_.styles.find(layer.fqn);
    if (found == result_.styles.end()) return;
    const ParallelStyle& style = found->second;
    const std::string& pattern = patterns_.at(layer.fqn);
    if (style.kind == StyleKind::kSequence && !use_.sequence_parallel) {
      add(pattern, "sequence_parallel needs distributed.sequence_parallel: true");
    }
    if (dynamic_cast<nn::Embedding*>(layer.module) != nullptr) {
      if (layer.fqn != model_.plan.embedding || style.kind != StyleKind::kRowwise) {
        add(pattern, "an embedding is split by rows of the vocabulary: use rowwise or rowwise_rep");
      }
    } else if (dynamic_cast<nn::Norm*>(layer.module) != nullptr) {
      if (style.kind != StyleKind::kSequence || layer.is_under_heads) {
        add(pattern, layer.is_under_heads
                         ? "a norm of heads is never split: leave it out"
                         : "a norm is not split: use sequence_parallel or leave it out");
      }
    } else if (const auto* linear = dynamic_cast<nn::Linear*>(layer.module)) {
      check_linear(layer, *linear, style, pattern);
    } else {
      add(pattern, "this module cannot be split");
    }
  }

  void check_linear(const TpLayer& layer, const nn::Linear& linear, const ParallelStyle& style,
                    const std::string& pattern) {
    if (layer.fqn == model_.plan.head) {
      if (linear.options().out_features != model_.vocab_size) {
        add(pattern,
            cat("the head of a classifier, ", short_names(layer), ", is not split: leave it out"));
      } else if (style.kind != StyleKind::kColwise) {
        add(pattern, "the output head is split by rows of the vocabulary: use colwise");
      }
      return;
    }
    const auto check = [&](int64_t size, const char* what) {
      if (size % use_.tp_size == 0) return;
      add(pattern, cat(short_names(layer), ": ", size, " ", what,
                       " features must be divisible by TP size (", use_.tp_size, ")"));
    };
    switch (style.kind) {
      case StyleKind::kColwise:
        for (const int64_t rows : output_groups(linear)) check(rows, "output");
        return;
      case StyleKind::kRowwise:
        check(linear.options().in_features, "input");
        return;
      case StyleKind::kSequence:
        add(pattern, "sequence_parallel is for norms: use colwise or rowwise");
        return;
    }
  }

  const ParallelStyle* style_of(const TpLayer& layer) const {
    const auto found = result_.styles.find(layer.fqn);
    return found == result_.styles.end() ? nullptr : &found->second;
  }

  void check_pairs(const std::vector<TpLayer>& layers) {
    for (const nn::TpPair& pair : model_.plan.tp_pairs) {
      for (const TpLayer& first : layers) {
        if (!matches_module(pair.first, first.fqn)) continue;
        for (const TpLayer& second : layers) {
          const bool is_mate = matches_module(pair.second, second.fqn) &&
                               parent_of(second.fqn) == parent_of(first.fqn);
          if (is_mate) check_pair(first, second);
        }
      }
    }
  }

  void check_pair(const TpLayer& first, const TpLayer& second) {
    const ParallelStyle* in = style_of(first);
    const ParallelStyle* out = style_of(second);
    const auto where = [&](const TpLayer& layer) {
      const auto found = patterns_.find(layer.fqn);
      return found == patterns_.end() ? patterns_.begin()->second : found->second;
    };
    const bool takes_part =
        in != nullptr && in->kind == StyleKind::kRowwise && in->input == StyleLayout::kShardLast;
    const bool gives_part =
        in != nullptr && in->kind == StyleKind::kColwise && in->output == StyleLayout::kShardLast;
    const bool wants_part =
        out != nullptr && out->kind == StyleKind::kRowwise && out->input == StyleLayout::kShardLast;
    const bool ends_in_part = out != nullptr && out->kind == StyleKind::kColwise &&
                              out->output == StyleLayout::kShardLast;
    if (takes_part) {
      add(where(first), "every rank has all of its input features: use colwise or rowwise_rep");
    } else if (gives_part && !wants_part) {
      add(where(first), cat(short_names(second), " gets a part of its input features from ",
                            short_names(first), " and must be rowwise"));
    } else if (!gives_part && wants_part) {
      add(where(second), cat(short_names(second), " gets all of its input features from ",
                             short_names(first), ": use rowwise_rep"));
    } else if (ends_in_part) {
      add(where(second), "every rank needs all of its output features: use rowwise or colwise_rep");
    } else if (use_.sequence_parallel && model_.plan.no_sp_reasons.empty()) {
      const bool is_whole = in == nullptr && out == nullptr && !first.is_under_heads;
      const bool is_split = in != nullptr && in->kind == StyleKind::kColwise && out != nullptr &&
                            out->kind == StyleKind::kRowwise;
      if (!is_whole && !is_split && !patterns_.empty()) {
        add(in != nullptr ? where(first) : where(second),
            cat("with sequence_parallel ", short_names(first), " must be colwise and ",
                short_names(second), " rowwise"));
      }
    }
  }

  void check_matches() {
    if (!use_.must_match) return;
    for (const auto& [pattern, style] : plan_) {
      if (!matched_.contains(pattern)) {
        add(pattern, cat("'", pattern, "' matches no module of ", model_.architecture));
      }
    }
  }

  const TpModel& model_;
  const TpShardPlan& plan_;
  const TpUse& use_;
  std::set<std::string> matched_;
  std::map<std::string, std::string> patterns_;  // fqn -> the plan's entry that set its style
  TpLayerPlan result_;
};

}  // namespace

TpLayerPlan plan_layers(torch::nn::Module& module, const TpModel& model, const TpShardPlan& plan,
                        const TpUse& use) {
  return LayerPlanner(model, plan, use).run(module);
}

}  // namespace automodel::distributed
