#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/is_one_of.h"

namespace automodel::optim {

namespace {

const std::vector<std::string> kStyles = {"constant", "linear", "cosine", "inverse-square-root",
                                          "WSD"};
const std::vector<std::string> kWsdStyles = {"linear", "cosine", "exponential", "minus_sqrt"};
const std::vector<std::string> kWdStyles = {"constant", "linear", "cosine"};

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
  Parameters parameters;
  parameters.init_lr = parameters.max_lr = parameters.min_lr = lr;
  parameters.start_wd = parameters.end_wd = weight_decay;
  return LrSchedule(std::move(parameters));
}

LrSchedule::Parameters LrSchedule::parameters_of(const LrSchedulerConfig& config, double base_lr,
                                                 double base_wd, int64_t total_steps) {
  Parameters parameters;
  parameters.style = config.lr_decay_style;
  parameters.wsd_style = config.lr_wsd_decay_style.value_or("");
  parameters.wd_style = config.wd_incr_style;
  parameters.warmup_steps = config.lr_warmup_steps.value_or(default_warmup(total_steps));
  parameters.decay_steps = config.lr_decay_steps.value_or(total_steps);
  parameters.wsd_steps = config.wsd_decay_steps.value_or(0);
  parameters.wd_steps = config.wd_incr_steps.value_or(total_steps);
  parameters.init_lr = config.init_lr.value_or(0.1 * base_lr);
  parameters.max_lr = config.max_lr.value_or(base_lr);
  parameters.min_lr = config.min_lr.value_or(0.01 * base_lr);
  parameters.start_wd = config.start_wd.value_or(base_wd);
  parameters.end_wd = config.end_wd.value_or(base_wd);
  return parameters;
}

std::vector<LrSchedule::Finding> LrSchedule::check(const LrSchedulerConfig& config, double base_lr,
                                                   double base_wd, int64_t total_steps) {
  std::vector<Finding> findings;
  const auto find = [&](const char* key, std::string text) {
    findings.push_back({key, std::move(text)});
  };
  if (!is_one_of(kStyles, config.lr_decay_style)) {
    find("lr_decay_style", one_of(config.lr_decay_style, kStyles));
  }
  if (!is_one_of(kWdStyles, config.wd_incr_style)) {
    find("wd_incr_style", one_of(config.wd_incr_style, kWdStyles));
  }
  if (config.lr_wsd_decay_style && !is_one_of(kWsdStyles, *config.lr_wsd_decay_style)) {
    find("lr_wsd_decay_style", one_of(*config.lr_wsd_decay_style, kWsdStyles));
  }
  if (config.lr_decay_style == "WSD" && !(config.wsd_decay_steps && config.lr_wsd_decay_style)) {
    find("lr_decay_style", "WSD needs both wsd_decay_steps and lr_wsd_decay_style");
  }
  const Parameters made = parameters_of(config, base_lr, base_wd, total_steps);
  if (made.min_lr > made.max_lr) {
    find("min_lr", cat("min_lr ", made.min_lr, " is larger than max_lr ", made.max_lr));
  }
  if (made.init_lr > made.max_lr) {
    find("init_lr", cat("init_lr ", made.init_lr, " is larger than max_lr ", made.max_lr));
  }
  if (made.warmup_steps >= made.decay_steps) {
    find(config.lr_warmup_steps ? "lr_warmup_steps" : "lr_decay_steps",
         cat("lr_warmup_steps ", made.warmup_steps, " must be less than lr_decay_steps ",
             made.decay_steps, config.lr_decay_steps ? "" : ", by default the steps of the run",
             "; a shorter warm-up helps: lr_scheduler.lr_warmup_steps: ", made.decay_steps / 10));
  }
  if (config.lr_decay_style == "WSD" && made.warmup_steps < made.decay_steps &&
      made.wsd_steps > made.decay_steps - made.warmup_steps) {
    find("wsd_decay_steps",
         cat("wsd_decay_steps ", made.wsd_steps, " is more than the ",
             made.decay_steps - made.warmup_steps, " steps between lr_warmup_steps ",
             made.warmup_steps, " and lr_decay_steps ", made.decay_steps,
             config.lr_decay_steps ? "" : ", by default the steps of the run",
             ": the rate would fall at once after the warm-up"));
  }
  const char* const wd_key = config.end_wd ? "end_wd" : "start_wd";
  const std::string range =
      cat("start_wd is ", made.start_wd, " and end_wd ", made.end_wd,
          config.start_wd && config.end_wd
              ? ""
              : "; the one that is not given is the optimizer's weight_decay");
  if (made.start_wd < 0 || made.end_wd < made.start_wd) {
    find(wd_key, cat("weight decay must satisfy 0 <= start_wd <= end_wd: ", range));
  } else if (config.wd_incr_style == "constant" && made.start_wd != made.end_wd) {
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
  parameters_ = parameters_of(config, base_lr, base_wd, total_steps);
}

double LrSchedule::lr(int64_t steps) const {
  if (parameters_.warmup_steps > 0 && steps <= parameters_.warmup_steps) {
    return parameters_.init_lr + (parameters_.max_lr - parameters_.init_lr) *
                                     static_cast<double>(steps) /
                                     static_cast<double>(parameters_.warmup_steps);
  }
  if (parameters_.style == "constant") return parameters_.max_lr;
  if (steps > parameters_.decay_steps) return parameters_.min_lr;
  if (parameters_.style == "inverse-square-root") {
    const double warmup = static_cast<double>(std::max<int64_t>(parameters_.warmup_steps, 1));
    const double done = static_cast<double>(std::max<int64_t>(steps, 1));
    return std::max(parameters_.min_lr, parameters_.max_lr * std::sqrt(warmup) / std::sqrt(done));
  }
  return parameters_.min_lr + decay_coefficient(steps) * (parameters_.max_lr - parameters_.min_lr);
}

double LrSchedule::decay_coefficient(int64_t steps) const {
  if (parameters_.style == "WSD") return wsd_coefficient(steps);
  const double ratio = static_cast<double>(steps - parameters_.warmup_steps) /
                       static_cast<double>(parameters_.decay_steps - parameters_.warmup_steps);
  return parameters_.style == "linear" ? 1.0 - ratio : half_cosine(ratio);
}

double LrSchedule::wsd_coefficient(int64_t steps) const {
  const int64_t begin = parameters_.decay_steps - parameters_.wsd_steps;
  if (steps <= begin) return 1.0;
  const double ratio =
      static_cast<double>(steps - begin) / static_cast<double>(parameters_.wsd_steps);
  if (parameters_.wsd_style == "linear") return 1.0 - ratio;
  if (parameters_.wsd_style == "cosine") return half_cosine(ratio);
  if (parameters_.wsd_style == "exponential") return 2.0 * std::pow(0.5, ratio) - 1.0;
  return 1.0 - std::sqrt(ratio);
}

double LrSchedule::weight_decay(int64_t steps) const {
  if (steps > parameters_.wd_steps) return parameters_.end_wd;
  if (parameters_.wd_style == "constant") return parameters_.end_wd;
  const double ratio = static_cast<double>(steps) / static_cast<double>(parameters_.wd_steps);
  const double coefficient = parameters_.wd_style == "linear" ? ratio : half_cosine(1.0 - ratio);
  return parameters_.start_wd + coefficient * (parameters_.end_wd - parameters_.start_wd);
}

Json LrSchedule::state() const {
  Json state = Json::object();
  state["lr_decay_style"] = parameters_.style;
  state["lr_wsd_decay_style"] = parameters_.wsd_style;
  state["wd_incr_style"] = parameters_.wd_style;
  state["lr_warmup_steps"] = parameters_.warmup_steps;
  state["lr_decay_steps"] = parameters_.decay_steps;
  state["wsd_decay_steps"] = parameters_.wsd_steps;
  state["wd_incr_steps"] = parameters_.wd_steps;
  state["init_lr"] = parameters_.init_lr;
  state["max_lr"] = parameters_.max_lr;
  state["min_lr"] = parameters_.min_lr;
  state["start_wd"] = parameters_.start_wd;
  state["end_wd"] = parameters_.end_wd;
  return state;
}

LrSchedule LrSchedule::from_state(const Json& state) {
  Parameters parameters;
  parameters.style = state.at("lr_decay_style").as_string();
  parameters.wsd_style = state.at("lr_wsd_decay_style").as_string();
  parameters.wd_style = state.at("wd_incr_style").as_string();
  parameters.warmup_steps = state.at("lr_warmup_steps").as_int();
  parameters.decay_steps = state.at("lr_decay_steps").as_int();
  parameters.wsd_steps = state.at("wsd_decay_steps").as_int();
  parameters.wd_steps = state.at("wd_incr_steps").as_int();
  parameters.init_lr = state.at("init_lr").as_double();
  parameters.max_lr = state.at("max_lr").as_double();
  parameters.min_lr = state.at("min_lr").as_double();
  parameters.start_wd = state.at("start_wd").as_double();
  parameters.end_wd = state.at("end_wd").as_double();
  return LrSchedule(std::move(parameters));
}

}  // namespace automodel::optim
