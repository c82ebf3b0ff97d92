#include "mesh/mesh.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace automodel::mesh {

namespace {

constexpr std::array<Axis, kNumAxes> kAxes = {Axis::kPp, Axis::kDpReplicate, Axis::kDpShard,
                                              Axis::kCp, Axis::kTp};

size_t index_of(Axis axis) {
  return static_cast<size_t>(axis);
}

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Row-major coordinate of a position in the mesh.
Coordinate coordinate_of(const MeshSizes& sizes, int position) {
  Coordinate coordinate{};
  for (size_t i = kNumAxes; i-- > 0;) {
    const int size = sizes.size(kAxes[i]);
    coordinate[i] = position % size;
    position /= size;
  }
  return coordinate;
}

int position_at(const MeshSizes& sizes, const Coordinate& coordinate) {
  int position = 0;
  for (size_t i = 0; i < kNumAxes; ++i) position = position * sizes.size(kAxes[i]) + coordinate[i];
  return position;
}

/// Findings for sizes below 1.
std::vector<SizeFinding> too_small(const SizeRequest& request) {
  std::vector<SizeFinding> findings;
  const auto check = [&](const char* key, int64_t size) {
    if (size < 1) findings.push_back({key, cat(key, " is ", size, "; it must be at least 1")});
  };
  check("tp_size", request.tp);
  check("cp_size", request.cp);
  check("pp_size", request.pp);
  check("dp_size", request.dp.value_or(1));
  check("dp_replicate_size", request.dp_replicate);
  check("ep_size", request.ep);
  return findings;
}

void check_replicas(int64_t dp, int64_t replicas, std::vector<SizeFinding>& findings) {
  if (replicas == 1) return;
  if (dp % replicas != 0) {
    findings.push_back(
        {"dp_replicate_size", cat("dp_size must be a multiple of dp_replicate_size: dp_size is ",
                                  dp, ", dp_replicate_size ", replicas)});
  } else if (replicas >= dp) {
    findings.push_back(
        {"dp_replicate_size", cat("dp_replicate_size=", replicas, " must be less than dp_size=", dp,
                                  " since DDP usecase is not supported by FSDP2")});
  }
}

}  // namespace

std::string_view axis_name(Axis axis) {
  switch (axis) {
    case Axis::kPp:
      return "pp";
    case Axis::kDpReplicate:
      return "dp_replicate";
    case Axis::kDpShard:
      return "dp_shard";
    case Axis::kCp:
      return "cp";
    case Axis::kTp:
      return "tp";
  }
  AM_CHECK(false);
}

std::optional<std::vector<Axis>> axes_of(std::string_view name) {
  for (const Axis axis : kAxes) {
    if (name == axis_name(axis)) return std::vector<Axis>{axis};
  }
  if (name == "dp") return std::vector<Axis>{Axis::kDpReplicate, Axis::kDpShard};
  if (name == "dp_shard_cp") return std::vector<Axis>{Axis::kDpShard, Axis::kCp};
  if (name == "dp_cp") return std::vector<Axis>{Axis::kDpReplicate, Axis::kDpShard, Axis::kCp};
  return std::nullopt;
}

int MeshSizes::size(Axis axis) const {
  switch (axis) {
    case Axis::kPp:
      return pp;
    case Axis::kDpReplicate:
      return dp_replicate;
    case Axis::kDpShard:
      return dp_shard;
    case Axis::kCp:
      return cp;
    case Axis::kTp:
      return tp;
  }
  AM_CHECK(false);
}

int MeshSizes::size(std::span<const Axis> axes) const {
  int product = 1;
  for (const Axis axis : axes) product *= size(axis);
  return product;
}

std::vector<SizeFinding> check_sizes(const SizeRequest& request, int64_t world_size) {
  std::vector<SizeFinding> findings = too_small(request);
  if (!findings.empty()) return findings;
  int64_t model_ranks = 0;
  const bool is_beyond_numbers = __builtin_mul_overflow(request.tp, request.cp, &model_ranks) ||
                                 __builtin_mul_overflow(model_ranks, request.pp, &model_ranks);
  if (is_beyond_numbers) model_ranks = std::numeric_limits<int64_t>::max();
  const std::string product = is_beyond_numbers ? "more than 2^63" : cat(model_ranks);
  if (world_size % model_ranks != 0) {
    findings.push_back(
        {"tp_size",
         cat("world_size (", world_size, ") must be divisible by (tp_size * cp_size * pp_size) (",
             request.tp, " * ", request.cp, " * ", request.pp, " = ", product, ")")});
    return findings;
  }
  const int64_t dp = world_size / model_ranks;
  if (request.dp && *request.dp != dp) {
    findings.push_back({"dp_size", cat("dp_size ", *request.dp, " does not fit: ", world_size,
                                       " ranks / (tp ", request.tp, " * cp ", request.cp, " * pp ",
                                       request.pp, ") = ", dp, "; set it to that or to none")});
  }
  check_replicas(dp, request.dp_replicate, findings);
  const int64_t stage_ranks = dp * request.cp * request.tp;
  if (stage_ranks % request.ep != 0) {
    findings.push_back({"ep_size", cat("ep_size ", request.ep, " does not divide the ", stage_ranks,
                                       " ranks of a pipeline stage (dp * cp * tp)")});
  }
  return findings;
}

MeshSizes infer_sizes(const SizeRequest& request, int64_t world_size) {
  const std::vector<SizeFinding> findings = check_sizes(request, world_size);
  if (!findings.empty()) throw UserError(findings[0].text);
  const int64_t dp = world_size / (request.tp * request.cp * request.pp);
  MeshSizes sizes;
  sizes.pp = static_cast<int>(request.pp);
  sizes.dp_replicate = static_cast<int>(request.dp_replicate);
  sizes.dp_shard = static_cast<int>(dp / request.dp_replicate);
  sizes.cp = static_cast<int>(request.cp);
  sizes.tp = static_cast<int>(request.tp);
  return sizes;
}

namespace {

const MeshSizes& checked(const MeshSizes& sizes) {
  for (const Axis axis : kAxes) {
    if (sizes.size(axis) >= 1) continue;
    throw UserError(
        cat("mesh axis ", axis_name(axis), " is ", sizes.size(axis), "; it must be at least 1"));
  }
  return sizes;
}

}  // namespace

Mesh::Mesh(const MeshSizes& sizes)
    : sizes_(checked(sizes)), ranks_(first_ranks(sizes.world_size())) {}

Mesh::Mesh(const MeshSizes& sizes, std::vector<int> ranks)
    : sizes_(checked(sizes)), ranks_(std::move(ranks)) {
  if (static_cast<int>(ranks_.size()) != sizes_.world_size()) {
    throw UserError(
        cat("mesh ranks (", ranks_.size(), ") must match mesh size (", sizes_.world_size(), ")"));
  }
  std::vector<int> sorted = ranks_;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    throw UserError("mesh ranks must be unique");
  }
}

int Mesh::position_of(int rank) const {
  const auto it = std::find(ranks_.begin(), ranks_.end(), rank);
  AM_CHECK(it != ranks_.end(), "rank ", rank, " is not in the mesh");
  return static_cast<int>(it - ranks_.begin());
}

Coordinate Mesh::coordinate(int rank) const {
  return coordinate_of(sizes_, position_of(rank));
}

int Mesh::rank_at(const Coordinate& coordinate) const {
  for (size_t i = 0; i < kNumAxes; ++i) {
    AM_CHECK(coordinate[i] >= 0 && coordinate[i] < sizes_.size(kAxes[i]), axis_name(kAxes[i]));
  }
  return ranks_[static_cast<size_t>(position_at(sizes_, coordinate))];
}

std::vector<int> Mesh::group_of(int rank, std::span<const Axis> axes) const {
  const Coordinate start = coordinate(rank);
  std::vector<int> group;
  const int count = sizes_.size(axes);
  for (int i = 0; i < count; ++i) {
    Coordinate place = start;
    int rest = i;
    for (size_t a = axes.size(); a-- > 0;) {
      place[index_of(axes[a])] = rest % sizes_.size(axes[a]);
      rest /= sizes_.size(axes[a]);
    }
    group.push_back(rank_at(place));
  }
  return group;
}

int Mesh::index_in_group(int rank, std::span<const Axis> axes) const {
  const Coordinate place = coordinate(rank);
  int index = 0;
  for (const Axis axis : axes) index = index * sizes_.size(axis) + place[index_of(axis)];
  return index;
}

std::vector<std::vector<int>> Mesh::groups(std::span<const Axis> axes) const {
  std::vector<std::vector<int>> all;
  for (const int rank : ranks_) {
    if (index_in_group(rank, axes) == 0) all.push_back(group_of(rank, axes));
  }
  return all;
}

std::vector<std::vector<int>> expert_groups(const Mesh& mesh, int ep, ExpertAxis axis) {
  constexpr std::array kStageAxes = {Axis::kDpReplicate, Axis::kDpShard, Axis::kCp, Axis::kTp};
  std::vector<std::vector<int>> groups;
  for (const std::vector<int>& stage : mesh.groups(kStageAxes)) {
    const int size = static_cast<int>(stage.size());
    AM_CHECK(size % ep == 0, ep, " of ", size);
    const bool is_ep = axis == ExpertAxis::kEp;
    const int num_groups = is_ep ? size / ep : ep;
    for (int group = 0; group < num_groups; ++group) {
      std::vector<int>& ranks = groups.emplace_back();
      for (int i = 0; i < size / num_groups; ++i) {
        ranks.push_back(stage[static_cast<size_t>(is_ep ? group * ep + i : i * ep + group)]);
      }
    }
  }
  return groups;
}

}  // namespace automodel::mesh
