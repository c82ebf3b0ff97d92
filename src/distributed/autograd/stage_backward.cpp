#include "distributed/autograd/stage_backward.h"

#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.h"

namespace automodel::distributed {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// A node that leads to the stage's input and has other edges that lead to parameters only.
struct GraphFork {
  std::shared_ptr<Node> node;
  std::shared_ptr<variable_list> arrived;
  std::vector<size_t> ways_to_input;      ///< indices of the node's next edges
  torch::autograd::edge_list parameters;  ///< accumulators of the parameters that the node leads to

  /// Removes the edges to the input. A module that runs twice has the same parameters behind
  /// several forks, and so behind these edges too.
  void cut_off_input() {
    for (const size_t i : ways_to_input) node->next_edges()[i] = Edge();
  }
};

namespace {

/// Stores the gradients that arrive at a node.
class ArrivalHook final : public torch::autograd::FunctionPreHook {
 public:
  explicit ArrivalHook(std::shared_ptr<variable_list> arrived) : arrived_(std::move(arrived)) {}

  variable_list operator()(const variable_list& gradients) override {
    *arrived_ = gradients;
    return gradients;
  }

 private:
  std::shared_ptr<variable_list> arrived_;
};

/// Finds which nodes of a graph lead to its input, and which only to parameters.
class GraphWalk final {
 public:
  GraphWalk(const std::shared_ptr<Node>& root, const Node* input) {
    visit(root.get(), input);
    for (Node* node : order_) {
      if (!leads_to_input_[node]) continue;
      GraphFork fork;
      std::unordered_set<Node*> seen;
      const auto& edges = node->next_edges();
      for (size_t i = 0; i < edges.size(); ++i) {
        if (!edges[i].is_valid()) continue;
        if (leads_to_input_[edges[i].function.get()]) {
          fork.ways_to_input.push_back(i);
        } else {
          collect(edges[i].function, seen, fork.parameters);
        }
      }
      fork.node = node->getptr();
      if (fork.parameters.empty()) {
        others.push_back(std::move(fork));
        continue;
      }
      fork.arrived = std::make_shared<variable_list>();
      forks.push_back(std::move(fork));
    }
  }

  std::vector<GraphFork> forks;
  std::vector<GraphFork> others;  ///< nodes that lead to the input and to no parameter

 private:
  /// Visits children before parents, without recursion: graphs are thousands of nodes deep.
  void visit(Node* root, const Node* input) {
    std::vector<std::pair<Node*, bool>> open = {{root, false}};
    while (!open.empty()) {
      const auto [node, has_seen_children] = open.back();
      open.pop_back();
      if (has_seen_children) {
        bool leads = node == input;
        for (const Edge& edge : node->next_edges()) {
          leads = leads || (edge.is_valid() && leads_to_input_[edge.function.get()]);
        }
        leads_to_input_[node] = leads;
        order_.push_back(node);
        continue;
      }
      if (!leads_to_input_.emplace(node, false).second) continue;
      open.emplace_back(node, true);
      for (const Edge& edge : node->next_edges()) {
        if (edge.is_valid()) open.emplace_back(edge.function.get(), false);
      }
    }
  }

  static void collect(const std::shared_ptr<Node>& from, std::unordered_set<Node*>& seen,
                      torch::autograd::edge_list& parameters) {
    if (!seen.insert(from.get()).second) return;
    if (dynamic_cast<torch::autograd::AccumulateGrad*>(from.get()) != nullptr) {
      parameters.emplace_back(from, 0);
      return;
    }
    for (const Edge& edge : from->next_edges()) {
      if (edge.is_valid()) collect(edge.function, seen, parameters);
    }
  }

  std::unordered_map<Node*, bool> leads_to_input_;
  std::vector<Node*> order_;
};

at::Tensor gradient_of_output(const StageGraph& graph) {
  return graph.output_gradient.defined() ? graph.output_gradient : at::ones_like(graph.output);
}

}  // namespace

struct WeightBackward::State {
  StageGraph graph;
  std::vector<GraphFork> forks;
};

WeightBackward::WeightBackward() = default;
WeightBackward::~WeightBackward() = default;
WeightBackward::WeightBackward(WeightBackward&&) noexcept = default;
WeightBackward& WeightBackward::operator=(WeightBackward&&) noexcept = default;

at::Tensor stage_backward(const StageGraph& graph) {
  // A first stage of frozen parameters has nothing to compute.
  if (!graph.input.defined() && !graph.output.requires_grad()) return {};
  torch::autograd::backward({graph.output}, {gradient_of_output(graph)});
  return graph.input.defined() ? graph.input.grad() : at::Tensor();
}

std::pair<at::Tensor, WeightBackward> stage_backward_input(const StageGraph& graph) {
  WeightBackward rest;
  rest.state_ = std::make_unique<WeightBackward::State>();
  rest.state_->graph = graph;
  if (!graph.input.defined()) return {at::Tensor(), std::move(rest)};
  const auto input = torch::autograd::impl::grad_accumulator(graph.input);
  GraphWalk walk(graph.output.grad_fn(), input.get());
  rest.state_->forks = std::move(walk.forks);
  for (const GraphFork& fork : rest.state_->forks) {
    fork.node->add_pre_hook(std::make_unique<ArrivalHook>(fork.arrived));
  }
  const variable_list gradients =
      torch::autograd::grad({graph.output}, {graph.input}, {gradient_of_output(graph)}, true);
  for (GraphFork& fork : rest.state_->forks) fork.cut_off_input();
  // A fork may keep one of these, to make its own input again; nothing behind it is needed.
  for (GraphFork& other : walk.others) other.cut_off_input();
  rest.state_->graph.output.reset();  // the forks keep what is needed of the graph
  return {gradients[0], std::move(rest)};
}

bool WeightBackward::is_whole() const {
  return state_ != nullptr && !state_->graph.input.defined();
}

void WeightBackward::run() {
  AM_CHECK(state_ != nullptr, "a stage's weight backward runs once, after its input backward");
  const std::unique_ptr<State> state = std::move(state_);
  if (!state->graph.input.defined()) {
    stage_backward(state->graph);
    return;
  }
  torch::autograd::edge_list roots, parameters;
  variable_list arrived;
  for (GraphFork& fork : state->forks) {
    for (size_t i = 0; i < fork.arrived->size(); ++i) {
      if (!(*fork.arrived)[i].defined()) continue;
      roots.emplace_back(fork.node, static_cast<uint32_t>(i));
      arrived.push_back(std::move((*fork.arrived)[i]));
    }
    parameters.insert(parameters.end(), fork.parameters.begin(), fork.parameters.end());
  }
  if (roots.empty()) return;
  // All forks at once, so that what several of them lead to, such as a cast weight, is computed
  // once.
  torch::autograd::Engine::get_default_engine().execute(roots, arrived, false, false, true,
                                                        parameters);
}

}  // namespace automodel::distributed
