#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/groups/process_group.h"
#include "distributed/context/context_split.h"
#include "distributed/groups/device_mesh.h"
#include "kernels/loss/vocabulary_rows.h"
#include "recipes/read/recipe.h"
#include "recipes/run/run_context.h"
#include "recipes/run/session_model.h"
#include "recipes/run/teacher.h"

namespace automodel::recipes {

/// What a rank does in distillation where student and teacher have ranks of their own.
struct LinkRole {
  bool is_teacher = false;
  int replica = 0;          ///< of the student or of the teacher: the rank's place on the axis dp
  bool speaks = false;      ///< a student's: sends the batches; a teacher's: the hidden states
  bool has_losses = false;  ///< a student's: computes losses, so it gets the hidden states
  distributed::SequenceShare share;  ///< a student's: of which tokens it gets them
};

/// The ranks of a student and of its teacher on ranks of its own, as each of them sees the others.
/// Replica i of the student asks replica i mod t of the teacher's t; a replica answers those that
/// it has one after the other. Messages go through the CPU's memory.
class TeacherLink final {
 public:
  /// Collective over `all`, the ranks of student and teacher. A rank waits for another of them
  /// without a limit while that one lives.
  TeacherLink(comm::ProcessGroup all, const LinkRole& own);

  const LinkRole& own() const { return roles_[static_cast<size_t>(all_.rank())]; }
  const comm::ProcessGroup& all() const { return all_; }

  /// On a student's rank: all ranks of the teacher's replica that teaches it.
  std::vector<int> teachers() const;
  /// On a student's rank: the one of teachers() that sends the hidden states.
  int answering() const;
  /// The number of ranks of all replicas of the teacher.
  int num_teachers() const;
  /// On a teacher's rank: the numbers of the student's replicas that it teaches, ascending.
  std::vector<int> students() const;
  /// On a teacher's rank: the rank of the student's replica `student` that sends its batches.
  int asking(int student) const;
  /// On a teacher's rank: the ranks of the student's replica `student` that get the hidden states.
  std::vector<int> listeners(int student) const;
  /// The tokens of which the rank `listener` gets the hidden states.
  distributed::SequenceShare share_of(int listener) const;

 private:
  int num_replicas(bool of_teacher) const;
  /// The ranks whose role `is_one` accepts; an InternalError if there is none.
  std::vector<int> ranks_of(const std::function<bool(const LinkRole&)>& is_one) const;

  comm::ProcessGroup all_;
  std::vector<LinkRole> roles_;
};

/// Makes the Teacher of a student's rank whose teacher is on other ranks, from which the hidden
/// states come. `link`: the ranks of student and teacher, whose waits have no limit. Collective
/// over `link`.
std::unique_ptr<Teacher> make_remote_teacher(const SessionModel& student,
                                             const distributed::DeviceMesh& mesh,
                                             const comm::ProcessGroup& link, at::Device device);

/// Runs a rank of a teacher on ranks of its own: loads the model and answers until the student's
/// ranks have nothing more to ask. `context` is that of the teacher's ranks. Collective over the
/// teacher's ranks and, once, over `link`.
void serve_student(const Recipe& recipe, const RunContext& context, const comm::ProcessGroup& link);

}  // namespace automodel::recipes
