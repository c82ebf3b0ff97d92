#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/process_group.h"
#include "distributed/groups/device_mesh.h"
#include "kernels/vocabulary_rows.h"
#include "recipes/read/recipe.h"
#include "recipes/run/run_context.h"
#include "recipes/run/session_model.h"
#include "recipes/run/teacher.h"

namespace automodel::recipes {

/// What a rank does where student and teacher have ranks of their own.
struct LinkRole {
  bool is_teacher = false;
  int replica = 0;          ///< of the student or of the teacher: the rank's place on the axis dp
  bool speaks = false;      ///< sends the replica's batches; or, a teacher's, its hidden states
  bool has_losses = false;  ///< of a student: gets the hidden states
};

/// The ranks of a student and of its teacher on ranks of its own, as each of them sees the others.
/// Replica i of the student asks replica i mod t of the teacher's t; a replica answers those that
/// it has one after the other. Messages go through the CPU's memory.
class TeacherLink final {
 public:
  /// Collective over `all`, every rank of both. A wait for one of them takes as long as it lives.
  TeacherLink(comm::ProcessGroup all, const LinkRole& own);

  const LinkRole& own() const { return roles_[static_cast<size_t>(all_.rank())]; }
  const comm::ProcessGroup& all() const { return all_; }

  /// On a rank of the student: every rank of the replica that teaches it, and the one that answers.
  std::vector<int> teachers() const;
  int answering() const;
  /// The ranks of all replicas of the teacher.
  int num_teachers() const;
  /// On a rank of the teacher: the replicas of the student that it teaches, in order, the rank of
  /// each that asks, and those that want the answer.
  std::vector<int> students() const;
  int asking(int student) const;
  std::vector<int> listeners(int student) const;

 private:
  int num_replicas(bool of_teacher) const;
  /// The ranks whose role is one of these; at least one.
  std::vector<int> ranks_of(const std::function<bool(const LinkRole&)>& is_one) const;

  comm::ProcessGroup all_;
  std::vector<LinkRole> roles_;
};

/// The teacher as a rank of the student sees it: what it follows comes from the teacher's ranks.
/// `link`: every rank of both, without a limit to waits. Collective over it.
std::unique_ptr<Teacher> make_remote_teacher(const SessionModel& student,
                                             const distributed::DeviceMesh& mesh,
                                             const comm::ProcessGroup& link, at::Device device);

/// A rank of a teacher on ranks of its own: loads the model and answers until the student's ranks
/// have nothing more to ask. `context` is that of the teacher's ranks. Collective over them and,
/// once, over `link`.
void serve_student(const Recipe& recipe, const RunContext& context, const comm::ProcessGroup& link);

}  // namespace automodel::recipes
