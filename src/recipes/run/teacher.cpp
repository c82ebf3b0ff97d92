#include "recipes/run/teacher.h"

#include <ATen/core/grad_mode.h>

#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "recipes/read/read_distillation.h"
#include "recipes/run/frozen_model.h"

namespace automodel::recipes {

at::Tensor Teacher::teach(nn::StudentLossHead& head, const Lesson& lesson,
                          const std::function<at::Tensor()>& student) {
  std::vector<kernels::TeacherHead> heads = look(lesson);
  AM_CHECK(heads.size() == 1, heads.size(), " heads of one batch");
  head.follow(std::move(heads[0]));
  return student();
}

namespace {

class LocalTeacher final : public Teacher {
 public:
  LocalTeacher(const Recipe& recipe, const distributed::DeviceMesh& mesh, const EnginePlace& place)
      : offloads_(recipe.distillation->offloads_teacher),
        model_(teacher_recipe(recipe), mesh, place) {}

  void load(comm::SlowWork& slow_work, Reporter& reporter) override {
    model_.load(slow_work, reporter);
    if (offloads_) model_.keep_on_host(reporter);
  }

  std::vector<kernels::TeacherHead> look(const Lesson& lesson) override {
    return model_.heads_of(lesson.batch, lesson.parts);
  }

  /// Where the teacher stays on the device, the student's forward runs inside the teacher's, while
  /// the weight of the head is there: no copy of it is kept, and none is gathered twice.
  at::Tensor teach(nn::StudentLossHead& head, const Lesson& lesson,
                   const std::function<at::Tensor()>& student) override {
    if (offloads_) return Teacher::teach(head, lesson, student);
    const bool has_gradients = at::GradMode::is_enabled();
    at::Tensor loss;
    model_.compute(lesson.parts[0], [&](const kernels::TeacherHead& teacher) {
      const at::AutoGradMode mode(has_gradients);
      head.follow(teacher);
      loss = student();
    });
    return loss;
  }

  std::string describe() const override { return model_.describe(); }

 private:
  bool offloads_;
  FrozenModel model_;
};

}  // namespace

std::unique_ptr<Teacher> make_local_teacher(const Recipe& recipe,
                                            const distributed::DeviceMesh& mesh,
                                            const EnginePlace& place) {
  return std::make_unique<LocalTeacher>(recipe, mesh, place);
}

}  // namespace automodel::recipes
