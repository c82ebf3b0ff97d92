#include "distributed/tensor/split_module.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"
#include "distributed/tensor/tp_collectives.h"
#include "distributed/tensor/tp_layers.h"
#include "distributed/tensor/vocab_parallel_loss.h"
#include "distributed/tensor/vocab_range.h"
#include "nn/tensor_parallel.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

namespace {

constexpr const char* kLoraA = "lora_A";
constexpr const char* kLoraB = "lora_B";
constexpr const char* kLoraMagnitude = "lora_magnitude";

/// State that the hooks of one module share.
struct TpStream {
  comm::ProcessGroup group;
  bool is_sequence_split = false;
  int64_t length = 0;  // of the current sequences
};

using StreamPtr = std::shared_ptr<TpStream>;

/// Splits the output features.
class ColwiseHook final : public nn::LayerHook {
 public:
  ColwiseHook(StreamPtr stream, bool gathers_output, std::vector<int64_t> groups)
      : stream_(std::move(stream)), gathers_output_(gathers_output), groups_(std::move(groups)) {}

  at::Tensor enter(const at::Tensor& x) override {
    if (!stream_->is_sequence_split) return enter_parts(x, stream_->group);
    return gather_sequence(x, stream_->length, stream_->group, OutputGradient::kSummand);
  }

  at::Tensor leave(const at::Tensor& y) override {
    if (!gathers_output_) return y;
    const int64_t num_ranks = stream_->group.size();
    const at::Tensor by_rank =
        gather_features(y, stream_->group).unflatten(-1, {num_ranks, y.size(-1)});
    std::vector<at::Tensor> groups;  // per group: all ranks' features in order
    int64_t begin = 0;
    for (const int64_t size : groups_) {
      groups.push_back(by_rank.narrow(-1, begin, size / num_ranks).flatten(-2, -1));
      begin += size / num_ranks;
    }
    return at::cat(groups, -1);
  }

  bool sums_outputs() const override { return false; }

 private:
  StreamPtr stream_;
  bool gathers_output_;
  std::vector<int64_t> groups_;
};

/// Splits the input features.
class RowwiseHook final : public nn::LayerHook {
 public:
  RowwiseHook(StreamPtr stream, bool takes_input)
      : stream_(std::move(stream)), takes_input_(takes_input) {}

  at::Tensor enter(const at::Tensor& x) override {
    return takes_input_ ? take_features(x, stream_->group) : x;
  }

  at::Tensor leave(const at::Tensor& y) override {
    return stream_->is_sequence_split ? sum_sequence_parts(y, stream_->group)
                                      : sum_parts(y, stream_->group);
  }

  bool sums_outputs() const override { return true; }

 private:
  StreamPtr stream_;
  bool takes_input_;
};

/// Hook of the input embedding, whose output begins the stream of hidden states.
class EmbeddingHook final : public nn::LayerHook {
 public:
  EmbeddingHook(StreamPtr stream, bool is_split)
      : stream_(std::move(stream)), is_split_(is_split) {}

  at::Tensor enter(const at::Tensor& ids) override { return ids; }

  at::Tensor leave(const at::Tensor& y) override {
    if (!stream_->is_sequence_split) return is_split_ ? sum_parts(y, stream_->group) : y;
    return is_split_ ? sum_sequence_parts(y, stream_->group) : take_sequence(y, stream_->group);
  }

  bool sums_outputs() const override { return is_split_; }

 private:
  StreamPtr stream_;
  bool is_split_;
};

/// Hook of the last norm, after which a split sequence is gathered.
class FinalNormHook final : public nn::LayerHook {
 public:
  FinalNormHook(StreamPtr stream, OutputGradient gradient)
      : stream_(std::move(stream)), gradient_(gradient) {}

  at::Tensor enter(const at::Tensor& x) override { return x; }
  at::Tensor leave(const at::Tensor& y) override {
    return gather_sequence(y, stream_->length, stream_->group, gradient_);
  }
  bool sums_outputs() const override { return false; }

 private:
  StreamPtr stream_;
  OutputGradient gradient_;
};

/// Splits one module's layers for one rank.
class ModuleSplitter final {
 public:
  ModuleSplitter(torch::nn::Module& module, const TpModel& model, const TpLayerPlan& plan,
                 const comm::ProcessGroup& group)
      : module_(module),
        model_(model),
        plan_(plan),
        stream_(std::make_shared<TpStream>(TpStream{group})) {
    rank_ = group.rank();
    num_ranks_ = group.size();
  }

  SplitModule run(bool sequence_parallel) {
    stream_->is_sequence_split = sequence_parallel;
    if (sequence_parallel) split_sequence();
    for (const auto& item : module_.named_parameters()) {
      const at::Tensor& value = item.value();
      parameters_[item.key()] = value;
      result_.num_parameters += value.numel();
      result_.num_trained_parameters += value.requires_grad() ? value.numel() : 0;
    }
    split_heads();
    for (const TpLayer& layer : find_tp_layers(module_, model_.keys)) split(layer);
    if (sequence_parallel) gather_after_final_norm();
    if (plan_.splits_vocabulary) {
      result_.loss_head =
          make_vocab_parallel_loss_head(stream_->group, model_.vocab_size, !sequence_parallel);
    }
    return std::move(result_);
  }

 private:
  const ParallelStyle* style_of(const std::string& fqn) const {
    const auto found = plan_.styles.find(fqn);
    return found == plan_.styles.end() ? nullptr : &found->second;
  }

  void split_sequence() {
    auto* model = dynamic_cast<nn::SplitsSequence*>(&module_);
    AM_CHECK(model != nullptr, "the model's blocks cannot work on a part of the sequence");
    model->keep_sequence_part(rank_, num_ranks_,
                              [stream = stream_](int64_t length) { stream->length = length; });
  }

  /// Tells modules with heads, if their projection is split, which heads are this rank's.
  void split_heads() {
    for (const auto& item : module_.named_modules("", false)) {
      auto* heads = dynamic_cast<nn::SplitsHeads*>(item.value().get());
      if (heads == nullptr) continue;
      for (const nn::TpPair& pair : model_.plan.tp_pairs) {
        for (const auto& [fqn, style] : plan_.styles) {
          const bool is_projection =
              parent_of(fqn) == item.key() && matches_module(pair.first, fqn);
          if (!is_projection || style.kind != StyleKind::kColwise) continue;
          if (style.output != StyleLayout::kShardLast) continue;
          heads->keep_heads(rank_, num_ranks_);
          with_split_heads_.insert(item.key());
        }
      }
    }
  }

  void split(const TpLayer& layer) {
    const ParallelStyle* style = style_of(layer.fqn);
    if (auto* head = dynamic_cast<nn::TiedHead*>(layer.module)) {
      if (style_of(model_.plan.embedding) != nullptr) {
        split_vocabulary(layer);
        split_head_adapter(head->lora());
        return;
      }
    } else if (auto* embedding = dynamic_cast<nn::Embedding*>(layer.module)) {
      if (layer.fqn == model_.plan.embedding) {
        embedding->set_layer_hook(std::make_shared<EmbeddingHook>(stream_, style != nullptr));
      }
      if (style != nullptr) {
        const VocabRange range = vocab_range();
        embedding->keep_rows(range.first, range.count);
        split_vocabulary(layer);
        return;
      }
    } else if (layer.fqn == model_.plan.head) {
      if (style != nullptr) {
        split_vocabulary(layer);
        const auto* head = dynamic_cast<nn::Linear*>(layer.module);
        if (head != nullptr && !head->loras().empty()) split_head_adapter(*head->loras()[0]);
        return;
      }
    } else if (auto* linear = dynamic_cast<nn::Linear*>(layer.module)) {
      if (style != nullptr) {
        split_linear(layer, *linear, *style);
        return;
      }
    }
    keep_whole(layer);
  }

  /// The last norm is found by its name: it may have no parameters.
  void gather_after_final_norm() {
    for (const auto& item : module_.named_modules("", false)) {
      auto* norm = dynamic_cast<nn::Norm*>(item.value().get());
      if (norm == nullptr || item.key() != model_.plan.final_norm) continue;
      norm->set_layer_hook(std::make_shared<FinalNormHook>(
          stream_, plan_.splits_vocabulary ? OutputGradient::kSummand : OutputGradient::kWhole));
    }
  }

  VocabRange vocab_range() const { return VocabRange::of(model_.vocab_size, rank_, num_ranks_); }

  const at::Tensor& parameter(const std::string& name) const { return parameters_.at(name); }

  std::vector<const tensor::ParameterPart*> parts_of(const std::string& parameter) const {
    std::vector<const tensor::ParameterPart*> parts;
    for (const tensor::ParameterPart& part : model_.keys) {
      if (part.parameter == parameter) parts.push_back(&part);
    }
    return parts;
  }

  std::vector<std::string> parameters_of(const TpLayer& layer) const {
    std::vector<std::string> names;
    for (const tensor::ParameterPart& part : model_.keys) {
      if (parent_of(part.parameter) != layer.fqn) continue;
      if (names.empty() || names.back() != part.parameter) names.push_back(part.parameter);
    }
    return names;
  }

  /// Makes rows [begin, begin + count) of the parameter the local rows that begin at `local`.
  void add_rows(const std::string& name, int64_t begin, int64_t count, int64_t local) {
    for (const tensor::ParameterPart* part : parts_of(name)) {
      const int64_t first = std::max(begin, part->row_begin);
      const int64_t end = std::min(begin + count, part->row_begin + part->shape[0]);
      if (first >= end) continue;
      tensor::ParameterPart piece = *part;
      piece.row_begin = local + (first - begin);
      piece.box_offset.assign(part->shape.size(), 0);
      piece.box_offset[0] = first - part->row_begin;
      piece.box_shape = part->shape;
      piece.box_shape[0] = end - first;
      result_.keys.push_back(std::move(piece));
    }
  }

  void resize(const std::string& name, int64_t dim, int64_t size) {
    std::vector<int64_t> sizes = parameter(name).sizes().vec();
    sizes[static_cast<size_t>(dim)] = size;
    tensor::resize_placeholder(parameter(name), sizes);
  }

  void split_vocabulary(const TpLayer& layer) {
    const VocabRange range = vocab_range();
    for (const std::string& name : parameters_of(layer)) {
      if (name.ends_with(kLoraA)) {
        // The gradient of the head's input is whole, but a summand when sequences are split.
        keep_whole(name, stream_->is_sequence_split);
        continue;
      }
      add_rows(name, range.first, range.count, 0);
      resize(name, 0, range.stored);
    }
  }

  /// Tells the adapter of a head which rows of the vocabulary, and of its B, are this rank's.
  void split_head_adapter(nn::Lora& lora) const {
    const VocabRange range = vocab_range();
    lora.keep_outputs({{{0, range.stored}, {{range.first, range.stored}}}});
  }

  void split_linear(const TpLayer& layer, nn::Linear& linear, const ParallelStyle& style) {
    if (style.kind == StyleKind::kRowwise) {
      linear.set_layer_hook(
          std::make_shared<RowwiseHook>(stream_, style.input == StyleLayout::kReplicate));
      const int64_t count = linear.options().in_features / num_ranks_;
      split_columns(layer, count);
      for (const auto& lora : linear.loras()) {
        lora->keep_inputs({rank_ * count, count}, [stream = stream_](const at::Tensor& summand) {
          return sum_parts(summand, stream->group);
        });
      }
      return;
    }
    const std::vector<int64_t> groups = output_groups(linear);
    linear.set_layer_hook(
        std::make_shared<ColwiseHook>(stream_, style.output == StyleLayout::kReplicate, groups));
    for (const std::string& name : parameters_of(layer)) {
      if (is_adapter(name)) continue;
      int64_t begin = 0;
      int64_t local = 0;
      for (const int64_t rows : groups) {
        const int64_t count = rows / num_ranks_;
        add_rows(name, begin + rank_ * count, count, local);
        begin += rows;
        local += count;
      }
      resize(name, 0, local);
    }
    for (size_t i = 0; i < linear.loras().size(); ++i) split_adapters(layer, linear, i, groups);
  }

  /// Splits the adapters of split output features: every rank holds A whole, and the rows of B and
  /// DoRA's magnitudes for its features. The gradient of A is the sum over the ranks.
  void split_adapters(const TpLayer& layer, nn::Linear& linear, size_t index,
                      const std::vector<int64_t>& groups) {
    nn::Lora& lora = *linear.loras()[index];
    const std::string suffix = nn::lora_suffix(index);
    std::vector<std::string> by_row = {cat(layer.fqn, ".", kLoraB, suffix)};
    if (lora.options().has_magnitude) by_row.push_back(cat(layer.fqn, ".", kLoraMagnitude, suffix));
    keep_whole(cat(layer.fqn, ".", kLoraA, suffix), true);
    std::vector<nn::HeldOutputs> held;
    int64_t row = 0;    // in the whole B
    int64_t local = 0;  // in this rank's B
    for (const nn::LoraPart& part : lora.options().parts) {
      nn::HeldOutputs own;
      int64_t begin = 0;
      int64_t local_output = 0;
      for (const int64_t size : groups) {
        const int64_t count = size / num_ranks_;
        const bool is_inside =
            begin >= part.range.first && begin + size <= part.range.first + part.range.count;
        if (is_inside) {
          const int64_t first = begin - part.range.first + rank_ * count;
          if (own.range.count == 0) own.range.first = local_output;
          for (const std::string& name : by_row) add_rows(name, row + first, count, local);
          own.in_matrix.push_back({first, count});
          own.range.count += count;
          local += count;
        }
        begin += size;
        local_output += count;
      }
      row += part.range.count;
      held.push_back(std::move(own));
    }
    for (const std::string& name : by_row) resize(name, 0, local);
    lora.keep_outputs(held);
  }

  /// Splits the columns of the weight and of the adapters' A. A bias stays whole, and so do B and
  /// DoRA's magnitudes, whose gradients are the sums over the ranks.
  void split_columns(const TpLayer& layer, int64_t count) {
    for (const std::string& name : parameters_of(layer)) {
      const bool is_of_outputs = name.find(cat(".", kLoraB)) != std::string::npos ||
                                 name.find(cat(".", kLoraMagnitude)) != std::string::npos;
      const bool has_columns = parameter(name).dim() == 2 && !is_of_outputs;
      if (!has_columns) {
        keep_whole(name, is_of_outputs || stream_->is_sequence_split);
        continue;
      }
      for (const tensor::ParameterPart* part : parts_of(name)) {
        tensor::ParameterPart piece = *part;
        piece.box_offset = {0, rank_ * count};
        piece.box_shape = {part->shape[0], count};
        result_.keys.push_back(std::move(piece));
      }
      resize(name, 1, count);
    }
  }

  void keep_whole(const std::string& name, bool has_summed_gradient) {
    for (const tensor::ParameterPart* part : parts_of(name)) {
      result_.keys.push_back(*part);
      if (has_summed_gradient) result_.summed.insert(part->name);
    }
  }

  void keep_whole(const TpLayer& layer) {
    const bool sees_part_of_sequence =
        stream_->is_sequence_split && layer.fqn != model_.plan.embedding &&
        layer.fqn != model_.plan.head && dynamic_cast<nn::TiedHead*>(layer.module) == nullptr;
    const bool is_norm_of_heads =
        layer.is_under_heads && dynamic_cast<nn::Norm*>(layer.module) != nullptr;
    const bool is_summed =
        is_norm_of_heads ? with_split_heads_.contains(parent_of(layer.fqn)) : sees_part_of_sequence;
    for (const std::string& name : parameters_of(layer)) keep_whole(name, is_summed);
  }

  torch::nn::Module& module_;
  const TpModel& model_;
  const TpLayerPlan& plan_;
  StreamPtr stream_;
  int rank_ = 0;
  int num_ranks_ = 1;
  std::map<std::string, at::Tensor> parameters_;
  std::set<std::string> with_split_heads_;
  SplitModule result_;
};

}  // namespace

SplitModule split_module(torch::nn::Module& module, const TpModel& model, const TpLayerPlan& plan,
                         const comm::ProcessGroup& group, bool sequence_parallel) {
  AM_CHECK(plan.findings.empty(), plan.findings[0].text);
  return ModuleSplitter(module, model, plan, group).run(sequence_parallel);
}

}  // namespace automodel::distributed
