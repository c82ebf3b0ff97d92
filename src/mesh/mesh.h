#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::mesh {

/// The axes of the mesh, slowest to fastest varying: tensor-parallel neighbours are adjacent ranks.
enum class Axis { kPp, kDpReplicate, kDpShard, kCp, kTp };

inline constexpr int kNumAxes = 5;

/// "pp", "dp_replicate", "dp_shard", "cp", "tp".
std::string_view axis_name(Axis axis);

/// The axes behind a name: an axis's own, or a joined one's: dp = dp_replicate x dp_shard (data
/// loading, token counts), dp_shard_cp (parameter sharding), dp_cp = dp x cp (loss, gradients).
/// nullopt for other names.
std::optional<std::vector<Axis>> axes_of(std::string_view name);

/// Ranks along each axis; all at least 1.
struct MeshSizes {
  int pp = 1;
  int dp_replicate = 1;
  int dp_shard = 1;
  int cp = 1;
  int tp = 1;

  int size(Axis axis) const;
  int size(std::span<const Axis> axes) const;
  int dp() const { return dp_replicate * dp_shard; }
  int world_size() const { return pp * dp() * cp * tp; }

  bool operator==(const MeshSizes&) const = default;
};

/// What a person asked for; dp absent: all ranks that are left.
struct SizeRequest {
  std::optional<int64_t> dp;
  int64_t dp_replicate = 1;
  int64_t pp = 1;
  int64_t cp = 1;
  int64_t tp = 1;
  int64_t ep = 1;
};

/// One thing that is wrong with a request.
struct SizeFinding {
  std::string key;  ///< the option it belongs to: "tp_size"
  std::string text;
};

/// What keeps `world_size` ranks from being such a mesh; empty when nothing does.
std::vector<SizeFinding> check_sizes(const SizeRequest& request, int64_t world_size);

/// The mesh of `world_size` ranks. Throws UserError with the first finding of check_sizes.
MeshSizes infer_sizes(const SizeRequest& request, int64_t world_size);

/// A rank's place along each axis, in the order of Axis.
using Coordinate = std::array<int, kNumAxes>;

/// Which ranks are neighbours along which axes. Arithmetic only: every rank computes the same.
class Mesh final {
 public:
  /// Ranks 0 to world_size - 1, row-major.
  explicit Mesh(const MeshSizes& sizes);
  /// A mesh over given ranks, e.g. those of one half of a cluster, row-major in their order. Throws
  /// UserError when their number does not fit or one comes twice.
  Mesh(const MeshSizes& sizes, std::vector<int> ranks);

  const MeshSizes& sizes() const { return sizes_; }
  const std::vector<int>& ranks() const { return ranks_; }

  Coordinate coordinate(int rank) const;
  int rank_at(const Coordinate& coordinate) const;

  /// The ranks that share `rank`'s place on all other axes, in row-major order of `axes`.
  std::vector<int> group_of(int rank, std::span<const Axis> axes) const;
  /// The place of `rank` in its group.
  int index_in_group(int rank, std::span<const Axis> axes) const;
  /// All such groups, by their first rank: what every rank hands to comm::World::split.
  std::vector<std::vector<int>> groups(std::span<const Axis> axes) const;

 private:
  int position_of(int rank) const;

  MeshSizes sizes_;
  std::vector<int> ranks_;
};

/// The axes of a mixture's experts: `ep` ranks hold different experts, `ep_shard` ranks share them.
enum class ExpertAxis { kEpShard, kEp };

/// All groups along an axis when the ranks of each pipeline stage, in row-major order, are taken as
/// [ep_shard, ep]; `ep` divides their number. Replicas and tensor-parallel ranks hold different
/// experts too. Ordered by their first rank.
std::vector<std::vector<int>> expert_groups(const Mesh& mesh, int ep, ExpertAxis axis);

}  // namespace automodel::mesh
