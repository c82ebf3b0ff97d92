#include "recipes/passes/classification_pass.h"

#include <ATen/ATen.h>

#include <string_view>
#include <utility>

#include "comm/groups/sums.h"
#include "recipes/passes/added_up.h"

namespace automodel::recipes {

namespace {

class ClassificationPass final : public training::BatchPass {
 public:
  ClassificationPass(std::unique_ptr<training::BatchPass> plain,
                     std::shared_ptr<nn::ClassifierLossHead> head, comm::ProcessGroup ranks)
      : plain_(std::move(plain)), head_(std::move(head)), ranks_(std::move(ranks)) {}

  void begin_step(const std::vector<tensor::Batch>&, int64_t) override { head_->reset(); }
  double train(const tensor::Batch& batch, double divisor,
               const training::BatchPlace& place) override {
    return plain_->train(batch, divisor, place);
  }
  void finish(double divisor) override { plain_->finish(divisor); }
  double known_everywhere(double loss) override { return plain_->known_everywhere(loss); }
  void describe(Json& record) const override { add_accuracy("loss", "accuracy", record); }

  void begin_evaluation() override { head_->reset(); }
  double evaluate(const tensor::Batch& batch, int64_t index) override {
    return plain_->evaluate(batch, index);
  }
  void describe_validation(int64_t, Json& record) const override {
    add_accuracy("val_loss", "val_accuracy", record);
  }

 private:
  /// The share of right classes behind the key of the loss; null where there is no label.
  void add_accuracy(std::string_view behind, const char* name, Json& record) const {
    const std::vector<double> sums =
        comm::sum_over(ranks_, {plain_->known_everywhere(added_up(head_->num_right())),
                                plain_->known_everywhere(added_up(head_->num_labels()))});
    Json out = Json::object();
    for (const auto& [key, value] : record.as_object()) {
      out[key] = value;
      if (key == behind) out[name] = sums[1] > 0 ? Json(sums[0] / sums[1]) : Json();
    }
    record = std::move(out);
  }

  std::unique_ptr<training::BatchPass> plain_;
  std::shared_ptr<nn::ClassifierLossHead> head_;
  comm::ProcessGroup ranks_;
};

}  // namespace

std::unique_ptr<training::BatchPass> make_classification_pass(
    std::unique_ptr<training::BatchPass> plain, std::shared_ptr<nn::ClassifierLossHead> head,
    comm::ProcessGroup ranks) {
  return std::make_unique<ClassificationPass>(std::move(plain), std::move(head), std::move(ranks));
}

}  // namespace automodel::recipes
