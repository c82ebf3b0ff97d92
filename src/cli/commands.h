#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace automodel::cli {

/// A recipe and the arguments that change it.
struct RecipeArguments {
  std::string path;
  std::string config;  ///< given with -c; wins over the positional
  std::vector<std::string> overrides;
};

struct RunArguments {
  RecipeArguments recipe;
  std::optional<int> num_local_ranks;
  std::string device;  ///< "": CUDA where the library and a device are, else CPU
  std::string trace_path;
  std::string log_path;  ///< "": the terminal only
};

struct CheckArguments {
  RecipeArguments recipe;
  std::optional<int64_t> world_size;
};

struct PlanArguments {
  RecipeArguments recipe;
  std::optional<int64_t> world_size;
  std::optional<int64_t> sequence_length;
  std::string device;         ///< "": what a run would choose
  std::string device_memory;  ///< a size or a device's name; "": not asked
  bool is_json = false;
};

struct TokenizeArguments {
  std::string folder;
  bool adds_special_tokens = false;
};

struct ParityArguments {
  std::string model;
  std::string reference;
  double tolerance_logits = 1e-4;
  double tolerance_loss = 1e-5;
  double tolerance_grad = 1e-3;
  std::string kernels = "fused";
};

/// The subcommands; each returns the exit status and throws UserError for what is wrong.
int run_recipe(const RunArguments& arguments);
int check_recipe(const CheckArguments& arguments);
int plan_memory(const PlanArguments& arguments);
int print_schema();
int explain_key(const std::string& key);
int tokenize_lines(const TokenizeArguments& arguments);
int check_parity(const ParityArguments& arguments);
std::string version_text();

}  // namespace automodel::cli
