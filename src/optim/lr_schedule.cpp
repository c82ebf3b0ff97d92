#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace automodel::optim {

namespace {

const std::vector<std::string> kStyles = {"constant", "linear", "cosine", "inverse-square-root",
                                          "WSD"};
const std::vector<std::string> kWsdStyles = {"linear", "cosine", "exponential", "minus_sqrt"};
const std::vector<std::string> kWdStyles = {"constant", "linear", "cosine"};

bool contains(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::string one_of(const std::string& value, const std::vector<std::string>& values) {
  return cat("'", value, "' is not one of: ", join(values, ", "), did_you_mean(value, values));
}

double half_cosine(double ratio) {
  return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0);
}

int64_t default_warmup(int64_t total_steps) {
  return std::min<int64_t>(1000, total_steps / 10);
}

}  // namespace

LrSchedule LrSchedule::constant(double lr, double weight_decay) {
  LrSchedule schedule;
  schedule.init_lr_ = schedule.max_lr_ = schedule.min_lr_ = lr;
  schedule.start_wd_ = schedule.end_wd_ = weight_decay;
  return schedule;
}

std::vector<LrSchedule::Finding> LrSchedule::check(const LrSchedulerConfig& config, double base_lr,
                                                   double base_wd, int64_t total_steps) {
  std::vector<Finding> findings;
  const auto find = [&](const char* key, std::string text) {
    findings.push_back({key, std::move(text)});
  };
  if (!contains(kStyles, config.lr_decay_style)) {
    find("lr_decay_style", one_of(config.lr_decay_style, kStyles));
  }
  if (!contains(kWdStyles, config.wd_incr_style)) {
    find("wd_incr_style", one_of(config.wd_incr_style, kWdStyles));
  }
  if (config.lr_wsd_decay_style && !contains(kWsdStyles, *config.lr_wsd_decay_style)) {
    find("lr_wsd_decay_style", one_of(*config.lr_wsd_decay_style, kWsdStyles));
  }
  if (config.lr_decay_style == "WSD" && !(config.wsd_decay_steps && config.lr_wsd_decay_style)) {
    find("lr_decay_style", "WSD needs both wsd_decay_steps and lr_wsd_decay_style");
  }
  const double max_lr = config.max_lr.value_or(base_lr);
  const double min_lr = config.min_lr.value_or(0.01 * base_lr);
  const double init_lr = config.init_lr.value_or(0.1 * base_lr);
  if (min_lr > max_lr) {
    find("min_lr", cat("min_lr ", min_lr, " is larger than max_lr ", max_lr));
  }
  if (init_lr > max_lr) {
    find("init_lr", cat("init_lr ", init_lr, " is larger than max_lr ", max_lr));
  }
  const int64_t decay = config.lr_decay_steps.value_or(total_steps);
  const int64_t warmup = config.lr_warmup_steps.value_or(default_warmup(total_steps));
  if (warmup >= decay) {
    find(config.lr_warmup_steps ? "lr_warmup_steps" : "lr_decay_steps",
         cat("lr_warmup_steps ", warmup, " must be less than lr_decay_steps ", decay,
             config.lr_decay_steps ? "" : ", by default the steps of the run",
             "; a shorter warm-up helps: lr_scheduler.lr_warmup_steps: ", decay / 10));
  }
  const double start_wd = config.start_wd.value_or(base_wd);
  const double end_wd = config.end_wd.value_or(base_wd);
  const char* const wd_key = config.end_wd ? "end_wd" : "start_wd";
  const std::string range =
      cat("start_wd is ", start_wd, " and end_wd ", end_wd,
          config.start_wd && config.end_wd
              ? ""
              : "; the one that is not given is the optimizer's weight_decay");
  if (start_wd < 0 || end_wd < start_wd) {
    find(wd_key, cat("weight decay must satisfy 0 <= start_wd <= end_wd: ", range));
  } else if (config.wd_incr_style == "constant" && start_wd != end_wd) {
    find(wd_key, cat("wd_incr_style: constant keeps one weight decay, but ", range,
                     "; linear or cosine goes from the first to the second"));
  }
  if (config.wd_incr_style != "constant" && config.wd_incr_steps == 0) {
    find("wd_incr_steps", cat("wd_incr_style: ", config.wd_incr_style, " needs steps to go over"));
  }
  return findings;
}

std::vector<LrSchedule::Finding> LrSchedule::unread(const LrSchedulerConfig& config) {
  std::vector<Finding> findings;
  const auto find = [&](bool is_given, bool is_read, const char* key, const char* reason) {
    if (is_given && !is_read) findings.push_back({key, cat(key, " has no effect: ", reason)});
  };
  const bool is_wsd = config.lr_decay_style == "WSD";
  const bool decays = config.lr_decay_style != "constant";
  const bool changes_wd = config.wd_incr_style != "constant";
  find(config.wsd_decay_steps.has_value(), is_wsd, "wsd_decay_steps",
       "it is for lr_decay_style: WSD");
  find(config.lr_wsd_decay_style.has_value(), is_wsd, "lr_wsd_decay_style",
       "it is for lr_decay_style: WSD");
  find(config.lr_decay_steps.has_value(), decays, "lr_decay_steps",
       "a constant rate does not fall");
  find(config.min_lr.has_value(), decays, "min_lr", "a constant rate does not fall");
  find(config.init_lr.has_value(), config.lr_warmup_steps != 0, "init_lr",
       "without warm-up the first rate is max_lr");
  find(config.wd_incr_steps.has_value(), changes_wd, "wd_incr_steps",
       "wd_incr_style: constant keeps one weight decay");
  return findings;
}

LrSchedule::LrSchedule(const LrSchedulerConfig& config, double base_lr, double base_wd,
                       int64_t total_steps) {
  std::vector<std::string> texts;
  for (const Finding& finding : check(config, base_lr, base_wd, total_steps)) {
    texts.push_back(cat("lr_scheduler.", finding.key, ": ", finding.text));
  }
  if (!texts.empty()) throw UserError(join(texts, "\n"));
  style_ = config.lr_decay_style;
  wsd_style_ = config.lr_wsd_decay_style.value_or("");
  wd_style_ = config.wd_incr_style;
  warmup_steps_ = config.lr_warmup_steps.value_or(default_warmup(total_steps));
  decay_steps_ = config.lr_decay_steps.value_or(total_steps);
  wsd_steps_ = config.wsd_decay_steps.value_or(0);
  wd_steps_ = config.wd_incr_steps.value_or(total_steps);
  init_lr_ = config.init_lr.value_or(0.1 * base_lr);
  max_lr_ = config.max_lr.value_or(base_lr);
  min_lr_ = config.min_lr.value_or(0.01 * base_lr);
  start_wd_ = config.start_wd.value_or(base_wd);
  end_wd_ = config.end_wd.value_or(base_wd);
}

double LrSchedule::lr(int64_t steps) const {
  if (warmup_steps_ > 0 && steps <= warmup_steps_) {
    return init_lr_ +
           (max_lr_ - init_lr_) * static_cast<double>(steps) / static_cast<double>(warmup_steps_);
  }
  if (style_ == "constant") return max_lr_;
  if (steps > decay_steps_) return min_lr_;
  if (style_ == "inverse-square-root") {
    const double warmup = static_cast<double>(std::max<int64_t>(warmup_steps_, 1));
    const double done = static_cast<double>(std::max<int64_t>(steps, 1));
    return std::max(min_lr_, max_lr_ * std::sqrt(warmup) / std::sqrt(done));
  }
  return min_lr_ + decay_coefficient(steps) * (max_lr_ - min_lr_);
}

double LrSchedule::decay_coefficient(int64_t steps) const {
  if (style_ == "WSD") return wsd_coefficient(steps);
  const double ratio = static_cast<double>(steps - warmup_steps_) /
                       static_cast<double>(decay_steps_ - warmup_steps_);
  return style_ == "linear" ? 1.0 - ratio : half_cosine(ratio);
}

double LrSchedule::wsd_coefficient(int64_t steps) const {
  const int64_t begin = decay_steps_ - wsd_steps_;
  if (steps <= begin) return 1.0;
  const double ratio = static_cast<double>(steps - begin) / static_cast<double>(wsd_steps_);
  if (wsd_style_ == "linear") return 1.0 - ratio;
  if (wsd_style_ == "cosine") return half_cosine(ratio);
  if (wsd_style_ == "exponential") return 2.0 * std::pow(0.5, ratio) - 1.0;
  return 1.0 - std::sqrt(ratio);
}

double LrSchedule::weight_decay(int64_t steps) const {
  if (steps > wd_steps_) return end_wd_;
  if (wd_style_ == "constant") return end_wd_;
  const double ratio = static_cast<double>(steps) / static_cast<double>(wd_steps_);
  const double coefficient = wd_style_ == "linear" ? ratio : half_cosine(1.0 - ratio);
  return start_wd_ + coefficient * (end_wd_ - start_wd_);
}

Json LrSchedule::state() const {
  Json state = Json::object();
  state["lr_decay_style"] = style_;
  state["lr_wsd_decay_style"] = wsd_style_;
  state["wd_incr_style"] = wd_style_;
  state["lr_warmup_steps"] = warmup_steps_;
  state["lr_decay_steps"] = decay_steps_;
  state["wsd_decay_steps"] = wsd_steps_;
  state["wd_incr_steps"] = wd_steps_;
  state["init_lr"] = init_lr_;
  state["max_lr"] = max_lr_;
  state["min_lr"] = min_lr_;
  state["start_wd"] = start_wd_;
  state["end_wd"] = end_wd_;
  return state;
}

LrSchedule LrSchedule::from_state(const Json& state) {
  LrSchedule schedule;
  schedule.style_ = state.at("lr_decay_style").as_string();
  schedule.wsd_style_ = state.at("lr_wsd_decay_style").as_string();
  schedule.wd_style_ = state.at("wd_incr_style").as_string();
  schedule.warmup_steps_ = state.at("lr_warmup_steps").as_int();
  schedule.decay_steps_ = state.at("lr_decay_steps").as_int();
  schedule.wsd_steps_ = state.at("wsd_decay_steps").as_int();
  schedule.wd_steps_ = state.at("wd_incr_steps").as_int();
  schedule.init_lr_ = state.at("init_lr").as_double();
  schedule.max_lr_ = state.at("max_lr").as_double();
  schedule.min_lr_ = state.at("min_lr").as_double();
  schedule.start_wd_ = state.at("start_wd").as_double();
  schedule.end_wd_ = state.at("end_wd").as_double();
  return schedule;
}

}  // namespace automodel::optim
