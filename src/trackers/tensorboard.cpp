#include "trackers/tensorboard.h"

#include <tensorboard/tensorboard_event.pb.h>

#include "core/error.h"
#include "core/timestamp.h"
#include "trackers/event_file.h"

namespace automodel::trackers {

namespace {

constexpr int32_t kText = 7;  // DT_STRING

/// The recipe as a text of its own, in Markdown.
void add_recipe(const std::string& yaml, tensorboard::Summary& summary) {
  tensorboard::Summary::Value& value = *summary.add_value();
  value.set_tag("recipe/text_summary");
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  tensorboard::TensorProto& tensor = *value.mutable_tensor();
  tensor.set_dtype(kText);
  tensor.mutable_tensor_shape()->add_dim()->set_size(1);
  tensor.add_string_val("```yaml\n" + yaml + (yaml.ends_with('\n') ? "```" : "\n```"));
}

void add_histogram(const std::string& tag, const Histogram& histogram,
                   tensorboard::Summary& summary) {
  tensorboard::Summary::Value& value = *summary.add_value();
  value.set_tag(tag);
  tensorboard::HistogramProto& made = *value.mutable_histo();
  made.set_min(histogram.min);
  made.set_max(histogram.max);
  made.set_num(histogram.count);
  made.set_sum(histogram.sum);
  made.set_sum_squares(histogram.sum_of_squares);
  for (const Histogram::Bucket& bucket : histogram.buckets) {
    made.add_bucket_limit(bucket.limit);
    made.add_bucket(bucket.count);
  }
}

class TensorBoard final : public Tracker {
 public:
  explicit TensorBoard(const TensorBoardRun& run) : file_(run.folder) {
    tensorboard::Event event;
    event.set_wall_time(unix_seconds());
    event.set_file_version("brain.Event:2");
    write(event);
    event.set_step(run.first_step);
    event.mutable_session_log()->set_status(tensorboard::SessionLog::START);
    write(event);
    add_recipe(run.recipe_text, *event.mutable_summary());
    write(event);
  }

  const char* name() const override { return "TensorBoard"; }
  Delivery start() override { return {}; }

  Delivery deliver(Records records) override {
    Delivery delivery;
    for (const auto& record : records) {
      try {
        write(event_of(*record));
      } catch (const InputError& error) {
        // What was written before it is settled first; the record comes again.
        if (delivery.num_records > 0) return delivery;
        return {Delivery::Outcome::kRefused, 1, error.what()};
      }
      ++delivery.num_records;
    }
    return delivery;
  }

  Delivery finish(RunEnd) override { return {}; }

 private:
  static tensorboard::Event event_of(const Record& record) {
    tensorboard::Event event;
    event.set_wall_time(record.unix_seconds);
    event.set_step(record.step);
    tensorboard::Summary& summary = *event.mutable_summary();
    for (const auto& [name, number] : record.values) {
      tensorboard::Summary::Value& value = *summary.add_value();
      value.set_tag(tensorboard_tag(record, name));
      value.set_simple_value(static_cast<float>(number));
    }
    for (const auto& [tag, histogram] : record.histograms) add_histogram(tag, histogram, summary);
    return event;
  }

  void write(const tensorboard::Event& event) { file_.append(event.SerializeAsString()); }

  EventFile file_;
};

}  // namespace

std::string tensorboard_tag(const Record& record, const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  if (record.set.empty()) return "train/" + name;
  const std::string short_name = name.starts_with("val_") ? name.substr(4) : name;
  return cat(record.set == "default" ? "val" : "val_" + record.set, "/", short_name);
}

std::unique_ptr<Tracker> make_tensorboard(const TensorBoardRun& run) {
  return std::make_unique<TensorBoard>(run);
}

}  // namespace automodel::trackers
