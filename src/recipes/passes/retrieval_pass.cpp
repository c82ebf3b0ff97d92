#include "recipes/passes/retrieval_pass.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <deque>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/groups/sums.h"
#include "recipes/passes/added_up.h"

namespace automodel::recipes {

namespace {

at::Tensor rows_of_all(const at::Tensor& own, const comm::ProcessGroup& ranks) {
  std::vector<int64_t> sizes = own.sizes().vec();
  sizes[0] *= ranks.size();
  at::Tensor all = at::empty(sizes, own.options());
  ranks.all_gather(all, own);
  return all;
}

/// The ranks that a gradient is summed over.
struct GroupHolder final : torch::CustomClassHolder {
  explicit GroupHolder(comm::ProcessGroup ranks) : group(std::move(ranks)) {}
  comm::ProcessGroup group;
};

/// The rows of all ranks; a row's gradient is the sum of what all ranks have for it.
struct GatheredRows : torch::autograd::Function<GatheredRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& own,
                            const c10::intrusive_ptr<GroupHolder>& ranks) {
    context->saved_data["ranks"] = c10::IValue::make_capsule(ranks);
    return rows_of_all(own, ranks->group);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const auto holder = context->saved_data["ranks"].toCapsule();
    const comm::ProcessGroup& ranks = static_cast<GroupHolder&>(*holder).group;
    const at::Tensor all = gradients[0].contiguous();
    std::vector<int64_t> sizes = all.sizes().vec();
    sizes[0] /= ranks.size();
    at::Tensor own = at::empty(sizes, all.options());
    ranks.reduce_scatter(own, all, comm::ReduceOp::kSum);
    return {own, at::Tensor()};
  }
};

class RetrievalPass final : public training::BatchPass {
 public:
  RetrievalPass(std::unique_ptr<training::BatchPass> plain,
                std::shared_ptr<nn::RetrievalLossHead> head, int64_t window_steps,
                comm::ProcessGroup ranks)
      : plain_(std::move(plain)),
        head_(std::move(head)),
        window_steps_(static_cast<size_t>(window_steps)),
        ranks_(std::move(ranks)) {}

  void begin_step(const std::vector<tensor::Batch>&, int64_t) override { head_->reset(); }
  tensor::TokenCounts count(const tensor::Batch& batch, int64_t ignore_index) const override {
    tensor::TokenCounts counts = plain_->count(batch, ignore_index);
    counts.num_label_tokens = batch.num_sequences();  // a sequence is a query's group
    return counts;
  }
  double train(const tensor::Batch& batch, double divisor,
               const training::BatchPlace& place) override {
    head_->begin_batch(batch.num_sequences(), true);
    return plain_->train(batch, divisor, place);
  }
  void finish(double divisor) override { plain_->finish(divisor); }
  double known_everywhere(double loss) override { return plain_->known_everywhere(loss); }

  void describe(Json& record) const override {
    const Counts counts = counts_of_all();
    if (const Json* loss = record.find("loss"); loss != nullptr && loss->is_number()) {
      window_.push_back(loss->as_double());
      if (window_.size() > window_steps_) window_.pop_front();
    }
    const double sum = std::accumulate(window_.begin(), window_.end(), 0.0);
    const double mean = window_.empty() ? 0 : sum / static_cast<double>(window_.size());
    add_behind("loss", {{"loss_avg_window", Json(mean)}, {"train_accuracy", counts.accuracy()}},
               record);
  }

  void begin_evaluation() override { head_->reset(); }
  double evaluate(const tensor::Batch& batch, int64_t index) override {
    head_->begin_batch(batch.num_sequences(), false);
    return plain_->evaluate(batch, index);
  }
  void describe_validation(int64_t, Json& record) const override {
    const Counts counts = counts_of_all();
    add_behind("val_loss",
               {{"val_acc1", counts.accuracy()}, {"val_mrr", counts.of(counts.reciprocal_ranks)}},
               record);
  }

 private:
  struct Counts {
    double queries = 0;
    double right = 0;
    double reciprocal_ranks = 0;

    Json of(double sum) const { return queries > 0 ? Json(sum / queries) : Json(); }
    Json accuracy() const { return of(right); }
  };

  Counts counts_of_all() const {
    const std::vector<double> sums =
        comm::sum_over(ranks_, {added_up(head_->num_queries()), added_up(head_->num_right()),
                                added_up(head_->reciprocal_ranks())});
    return {sums[0], sums[1], sums[2]};
  }

  static void add_behind(std::string_view key,
                         const std::vector<std::pair<const char*, Json>>& added, Json& record) {
    Json out = Json::object();
    for (const auto& [name, value] : record.as_object()) {
      out[name] = value;
      if (name != key) continue;
      for (const auto& [own, number] : added) out[own] = number;
    }
    record = std::move(out);
  }

  std::unique_ptr<training::BatchPass> plain_;
  std::shared_ptr<nn::RetrievalLossHead> head_;
  size_t window_steps_;
  mutable std::deque<double> window_;
  comm::ProcessGroup ranks_;
};

}  // namespace

nn::SharedPassages shared_passages(const comm::ProcessGroup& ranks, bool trains_remote) {
  const auto gather = [ranks, trains_remote](const at::Tensor& own) {
    if (ranks.size() == 1) return own;
    if (trains_remote && own.requires_grad())
      return GatheredRows::apply(own, c10::make_intrusive<GroupHolder>(ranks));
    at::Tensor all = rows_of_all(own.detach(), ranks);
    if (!own.requires_grad()) return all;
    std::vector<at::Tensor> parts = all.split(own.size(0));
    parts[static_cast<size_t>(ranks.rank())] = own;
    return at::cat(parts);
  };
  return {gather, ranks.rank()};
}

std::unique_ptr<training::BatchPass> make_retrieval_pass(
    std::unique_ptr<training::BatchPass> plain, std::shared_ptr<nn::RetrievalLossHead> head,
    int64_t window_steps, comm::ProcessGroup ranks) {
  return std::make_unique<RetrievalPass>(std::move(plain), std::move(head), window_steps,
                                         std::move(ranks));
}

}  // namespace automodel::recipes
