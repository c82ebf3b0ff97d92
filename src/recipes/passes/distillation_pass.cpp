#include "recipes/passes/distillation_pass.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "comm/groups/sums.h"
#include "recipes/passes/added_up.h"

namespace automodel::recipes {

namespace {

class DistillationPass final : public training::BatchPass {
 public:
  DistillationPass(std::unique_ptr<training::BatchPass> plain,
                   std::shared_ptr<nn::StudentLossHead> head, const DistillationRecipe& plan,
                   DistilledLosses losses)
      : plain_(std::move(plain)), head_(std::move(head)), plan_(plan), losses_(std::move(losses)) {}

  void begin_step(const std::vector<tensor::Batch>&, int64_t) override { head_->reset(); }
  double train(const tensor::Batch& batch, double divisor,
               const training::BatchPlace& place) override {
    if (losses_.are_plain_sums) divisor_ = divisor;
    return plain_->train(batch, divisor, place);
  }
  void finish(double divisor) override { plain_->finish(divisor); }
  double known_everywhere(double loss) override { return plain_->known_everywhere(loss); }

  void describe(Json& record) const override {
    // As the step's loss: divided by the labels' share of a rank.
    add_losses("loss", losses_.ranks.size() * divisor_, record);
    record["kd_ratio"] = plan_.kd_ratio;
    record["temperature"] = plan_.loss.temperature;
  }

  void begin_evaluation() override { head_->reset(); }
  double evaluate(const tensor::Batch& batch, int64_t index) override {
    return plain_->evaluate(batch, index);
  }
  void describe_validation(int64_t num_label_tokens, Json& record) const override {
    add_losses("val_loss", std::max(static_cast<double>(num_label_tokens), 1e-8), record);
  }

 private:
  /// The two losses of all ranks behind the key of their mixture.
  void add_losses(std::string_view behind, double divisor, Json& record) const {
    const std::vector<double> sums =
        comm::sum_over(losses_.ranks, {plain_->known_everywhere(added_up(head_->ce())),
                                       plain_->known_everywhere(added_up(head_->kd()))});
    Json out = Json::object();
    for (const auto& [key, value] : record.as_object()) {
      out[key] = value;
      if (key != behind) continue;
      out["ce_loss"] = static_cast<double>(static_cast<float>(sums[0] / divisor));
      out["kd_loss"] = static_cast<double>(static_cast<float>(sums[1] / divisor));
    }
    record = std::move(out);
  }

  std::unique_ptr<training::BatchPass> plain_;
  std::shared_ptr<nn::StudentLossHead> head_;
  const DistillationRecipe& plan_;
  DistilledLosses losses_;
  double divisor_ = 1;  // what the step's losses are still to be divided by
};

}  // namespace

std::shared_ptr<nn::StudentLossHead> make_student_head(const DistillationRecipe& plan,
                                                       const nn::LossHead& plain) {
  return std::make_shared<nn::StudentLossHead>(
      kernels::DistillationOptions{.kd_ratio = plan.kd_ratio,
                                   .temperature = plan.loss.temperature,
                                   .fp32_upcast = plan.loss.fp32_upcast},
      plain.rows());
}

std::unique_ptr<training::BatchPass> make_distillation_pass(
    std::unique_ptr<training::BatchPass> plain, std::shared_ptr<nn::StudentLossHead> head,
    const DistillationRecipe& plan, DistilledLosses losses) {
  return std::make_unique<DistillationPass>(std::move(plain), std::move(head), plan,
                                            std::move(losses));
}

}  // namespace automodel::recipes
