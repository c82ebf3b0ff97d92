#include "recipes/run/teacher_link.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/error.h"
#include "distributed/context/context_parallel.h"
#include "distributed/tensor/vocab_range.h"
#include "models/causal_lm.h"
#include "recipes/read/read_distillation.h"
#include "recipes/run/frozen_model.h"
#include "recipes/run/train_session.h"
#include "training/signals.h"

namespace automodel::recipes {

namespace {

constexpr int64_t kNumRoleNumbers = 6;

/// What a rank of a student says before each of its batches.
struct Question {
  bool is_end = false;
  int64_t num_sequences = 0;
  int64_t length = 0;
  std::array<bool, 3> has = {};  ///< position_ids, padding_mask, document_ids
};

constexpr int64_t kNumQuestionNumbers = 6;

at::Tensor numbers_of(const Question& question) {
  return at::tensor(std::vector<int64_t>{question.is_end, question.num_sequences, question.length,
                                         question.has[0], question.has[1], question.has[2]});
}

Question question_of(const at::Tensor& numbers) {
  const int64_t* n = numbers.const_data_ptr<int64_t>();
  return {n[0] != 0, n[1], n[2], {n[3] != 0, n[4] != 0, n[5] != 0}};
}

/// A batch's tensors that a forward reads, as one.
at::Tensor packed(const tensor::Batch& batch) {
  std::vector<at::Tensor> parts = {batch.input_ids};
  for (const at::Tensor* part : {&batch.position_ids, &batch.padding_mask, &batch.document_ids}) {
    if (part->defined()) parts.push_back(part->to(at::kLong));
  }
  return at::stack(parts).contiguous();
}

/// The batch of packed(), in which every token is scored: the student knows which are.
tensor::Batch unpacked(const at::Tensor& all, const Question& question, int64_t ignore_index) {
  tensor::Batch batch;
  int64_t next = 0;
  batch.input_ids = all[next++];
  if (question.has[0]) batch.position_ids = all[next++];
  if (question.has[1]) batch.padding_mask = all[next++].to(at::kBool);
  if (question.has[2]) batch.document_ids = all[next++];
  batch.labels = at::full_like(batch.input_ids, ignore_index == 0 ? 1 : 0);
  return batch;
}

/// What a listener must know before the first hidden states.
struct HeadSizes {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  at::ScalarType hidden_dtype = at::kFloat;
  at::ScalarType weight_dtype = at::kFloat;
  kernels::CrossEntropyOptions options;
};

constexpr int64_t kNumHeadNumbers = 7;

at::Tensor numbers_of(const HeadSizes& head) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  const auto& dtype = head.options.logits_dtype;
  return at::tensor(std::vector<double>{number(head.vocab_size), number(head.hidden_size),
                                        number(head.hidden_dtype), number(head.weight_dtype),
                                        head.options.softcap, head.options.logit_scale,
                                        dtype ? number(*dtype) : -1},
                    at::kDouble);
}

HeadSizes head_of(const at::Tensor& numbers) {
  const double* n = numbers.const_data_ptr<double>();
  const auto dtype = [](double number) {
    return static_cast<at::ScalarType>(static_cast<int>(number));
  };
  HeadSizes head{
      static_cast<int64_t>(n[0]), static_cast<int64_t>(n[1]), dtype(n[2]), dtype(n[3]), {}};
  head.options.softcap = n[4];
  head.options.logit_scale = n[5];
  if (n[6] >= 0) head.options.logits_dtype = dtype(n[6]);
  return head;
}

class RemoteTeacher final : public Teacher {
 public:
  RemoteTeacher(TeacherLink link, std::shared_ptr<const kernels::VocabularyRows> rows,
                at::Device device)
      : link_(std::move(link)), rows_(std::move(rows)), device_(device) {}

  /// Waits until the teacher's ranks have loaded it: those that ask nothing wait here too, and not
  /// in a collective of the student's, whose waits have a limit.
  void load(comm::SlowWork&, Reporter&) override { link_.all().barrier(); }

  std::vector<kernels::TeacherHead> look(const Lesson& lesson) override {
    if (link_.own().speaks) ask(lesson.batch);
    if (!link_.own().has_losses) return {};
    if (!head_) take_head();
    const tensor::Batch& batch = lesson.batch;
    const distributed::SequenceShare& share = link_.own().share;
    const int64_t length = distributed::padded_length(batch.sequence_length(), share) / share.size;
    const at::Tensor hidden =
        at::empty({batch.num_sequences(), length, head_->hidden_size}, head_->hidden_dtype);
    link_.all().recv(hidden, link_.answering());
    const at::Tensor here = hidden.to(device_);
    std::vector<kernels::TeacherHead> heads;
    int64_t first = 0;
    for (const tensor::Batch& part : lesson.parts) {
      const int64_t count = part.num_sequences();
      at::Tensor tokens = here.narrow(0, first, count).flatten(0, 1);
      const at::Tensor scored =
          models::scored_tokens(part.labels.reshape({-1}), lesson.ignore_index);
      if (scored.defined()) tokens = tokens.index_select(0, scored);
      heads.push_back({tokens, weight_, head_->options});
      first += count;
    }
    return heads;
  }

  void dismiss() override {
    if (link_.own().speaks) say({.is_end = true});
  }

  std::string describe() const override {
    const int num_ranks = link_.num_teachers();
    return cat("teacher: on ", num_ranks == 1 ? "a rank" : cat(num_ranks, " ranks"),
               num_ranks == 1 ? " of its own (frozen)" : " of their own (frozen)");
  }

 private:
  void say(const Question& question) {
    for (const int rank : link_.teachers()) link_.all().send(numbers_of(question), rank);
  }

  void ask(const tensor::Batch& batch) {
    say({.num_sequences = batch.num_sequences(),
         .length = batch.sequence_length(),
         .has = {batch.position_ids.defined(), batch.padding_mask.defined(),
                 batch.document_ids.defined()}});
    const at::Tensor tokens = packed(batch);
    for (const int rank : link_.teachers()) link_.all().send(tokens, rank);
  }

  /// The weight never changes, so it comes once.
  void take_head() {
    const at::Tensor numbers = at::empty({kNumHeadNumbers}, at::kDouble);
    link_.all().recv(numbers, link_.answering());
    head_ = head_of(numbers);
    const at::Tensor whole =
        at::empty({head_->vocab_size, head_->hidden_size}, head_->weight_dtype);
    link_.all().recv(whole, link_.answering());
    weight_ = rows_->part_of(whole).to(device_);
  }

  TeacherLink link_;
  std::shared_ptr<const kernels::VocabularyRows> rows_;
  at::Device device_;
  std::optional<HeadSizes> head_;
  at::Tensor weight_;
};

/// Answers the questions of the students of one rank's replica.
class TeacherServer final {
 public:
  TeacherServer(FrozenModel& model, TeacherLink link, const distributed::DeviceMesh& mesh,
                at::Device device, const Recipe& recipe)
      : model_(model),
        link_(std::move(link)),
        tp_(mesh.group("tp")),
        sharder_(mesh.group("cp"), recipe.loss.ignore_index),
        device_(device),
        ignore_index_(recipe.loss.ignore_index) {
    const auto& pipeline = recipe.distributed.pipeline;
    if (model_.model().pipeline) sequences_a_head_ = pipeline->pp_microbatch_size;
  }

  /// Until all students have ended.
  void serve() {
    bool goes_on = true;
    while (goes_on) {
      for (const int student : link_.students()) goes_on = answer(student);
    }
  }

 private:
  /// Whether the student asked anything.
  bool answer(int student) {
    const at::Tensor numbers = at::empty({kNumQuestionNumbers}, at::kLong);
    link_.all().recv(numbers, link_.asking(student));
    const Question question = question_of(numbers);
    if (question.is_end) return false;
    const int64_t num_tensors = 1 + question.has[0] + question.has[1] + question.has[2];
    const at::Tensor tokens =
        at::empty({num_tensors, question.num_sequences, question.length}, at::kLong);
    link_.all().recv(tokens, link_.asking(student));
    const tensor::Batch batch = unpacked(tokens, question, ignore_index_);
    const tensor::Batch share = sharder_.shard(batch).to(device_);
    const std::vector<kernels::TeacherHead> heads = model_.heads_of(batch, {share});
    if (heads.empty()) return true;
    tell(student, heads[0],
         sharder_.gather_token_tensor(hidden_of(share, heads), question.length).cpu());
    return true;
  }

  /// The hidden states [B, s, D] of this rank's share of a batch. A head has none of the tokens
  /// that only make sequences divisible: theirs are zero.
  at::Tensor hidden_of(const tensor::Batch& share,
                       const std::vector<kernels::TeacherHead>& heads) const {
    const int64_t num_sequences = share.num_sequences();
    const int64_t length = share.sequence_length();
    std::vector<at::Tensor> parts;
    int64_t first = 0;
    for (const kernels::TeacherHead& head : heads) {
      const int64_t count =
          std::min(sequences_a_head_.value_or(num_sequences), num_sequences - first);
      const at::Tensor labels = share.labels.narrow(0, first, count).reshape({-1});
      const at::Tensor scored = models::scored_tokens(labels, ignore_index_);
      at::Tensor hidden = head.hidden;
      if (scored.defined()) {
        hidden = at::zeros({labels.size(0), hidden.size(-1)}, hidden.options())
                     .index_copy_(0, scored, head.hidden);
      }
      parts.push_back(hidden.view({count, length, hidden.size(-1)}));
      first += count;
    }
    return at::cat(parts);
  }

  /// `hidden` [B, S, D]: on the CPU, of whole sequences. Collective over the tensor-parallel ranks.
  void tell(int student, const kernels::TeacherHead& head, const at::Tensor& hidden) {
    const bool is_first = std::find(told_.begin(), told_.end(), student) == told_.end();
    if (is_first) tell_head(student, head);
    if (!link_.own().speaks) return;
    for (const int rank : link_.listeners(student)) {
      link_.all().send(distributed::split_tokens(hidden, 0, link_.share_of(rank)), rank);
    }
  }

  /// Collective over the tensor-parallel ranks.
  void tell_head(int student, const kernels::TeacherHead& head) {
    told_.push_back(student);
    const at::Tensor weight = whole_weight(head.weight);
    if (!link_.own().speaks) return;
    const HeadSizes sizes{weight.size(0), weight.size(1), head.hidden.scalar_type(),
                          weight.scalar_type(), head.options};
    for (const int rank : link_.listeners(student)) {
      link_.all().send(numbers_of(sizes), rank);
      link_.all().send(weight, rank);
    }
  }

  /// The rows of all ranks, on the CPU.
  at::Tensor whole_weight(const at::Tensor& part) const {
    const auto rows = model_.head().rows();
    const int64_t vocab_size = rows->vocab_size(part);
    if (rows->of(part).size(0) == vocab_size) return part.cpu().contiguous();
    at::Tensor all = at::empty({tp_.size(), part.size(0), part.size(1)}, part.options());
    tp_.all_gather(all, part.contiguous());
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < tp_.size(); ++rank) {
      const auto range = distributed::VocabRange::of(vocab_size, rank, tp_.size());
      parts.push_back(all[rank].narrow(0, 0, range.count));
    }
    return at::cat(parts).cpu();
  }

  FrozenModel& model_;
  TeacherLink link_;
  comm::ProcessGroup tp_;
  distributed::ContextParallelSharder sharder_;
  at::Device device_;
  int64_t ignore_index_;
  std::optional<int64_t> sequences_a_head_;  // in stages: a micro-batch's
  std::vector<int> told_;                    // students that have the head
};

/// Whether a rank of a pipeline has the last stage.
bool has_last_stage(const SessionModel& model, const distributed::DeviceMesh& mesh) {
  if (!model.pipeline) return true;
  return model.pipeline->schedule.rank_of_stage.back() == mesh.group("pp").rank();
}

}  // namespace

TeacherLink::TeacherLink(comm::ProcessGroup all, const LinkRole& own) : all_(std::move(all)) {
  const at::Tensor mine = at::tensor(std::vector<int64_t>{
      own.is_teacher, own.replica, own.speaks, own.has_losses, own.share.rank, own.share.size});
  const at::Tensor everybodys = at::empty({all_.size(), kNumRoleNumbers}, at::kLong);
  all_.all_gather(everybodys, mine);
  for (int rank = 0; rank < all_.size(); ++rank) {
    const int64_t* n = everybodys.const_data_ptr<int64_t>() + rank * kNumRoleNumbers;
    roles_.push_back({n[0] != 0,
                      static_cast<int>(n[1]),
                      n[2] != 0,
                      n[3] != 0,
                      {static_cast<int>(n[4]), static_cast<int>(n[5])}});
  }
}

int TeacherLink::num_replicas(bool of_teacher) const {
  int count = 0;
  for (const LinkRole& role : roles_) {
    if (role.is_teacher == of_teacher) count = std::max(count, role.replica + 1);
  }
  return count;
}

std::vector<int> TeacherLink::ranks_of(const std::function<bool(const LinkRole&)>& is_one) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < all_.size(); ++rank) {
    if (is_one(roles_[static_cast<size_t>(rank)])) ranks.push_back(rank);
  }
  AM_CHECK(!ranks.empty(), "student and teacher do not find each other");
  return ranks;
}

std::vector<int> TeacherLink::teachers() const {
  const int replica = own().replica % num_replicas(/*of_teacher=*/true);
  return ranks_of([&](const LinkRole& role) { return role.is_teacher && role.replica == replica; });
}

int TeacherLink::num_teachers() const {
  return static_cast<int>(ranks_of([](const LinkRole& role) { return role.is_teacher; }).size());
}

int TeacherLink::answering() const {
  const int replica = own().replica % num_replicas(/*of_teacher=*/true);
  return ranks_of([&](const LinkRole& role) {
    return role.is_teacher && role.replica == replica && role.speaks;
  })[0];
}

std::vector<int> TeacherLink::students() const {
  std::vector<int> all;
  const int step = num_replicas(/*of_teacher=*/true);
  for (int i = own().replica; i < num_replicas(/*of_teacher=*/false); i += step) all.push_back(i);
  return all;
}

int TeacherLink::asking(int student) const {
  return ranks_of([&](const LinkRole& role) {
    return !role.is_teacher && role.replica == student && role.speaks;
  })[0];
}

std::vector<int> TeacherLink::listeners(int student) const {
  return ranks_of([&](const LinkRole& role) {
    return !role.is_teacher && role.replica == student && role.has_losses;
  });
}

distributed::SequenceShare TeacherLink::share_of(int listener) const {
  return roles_[static_cast<size_t>(listener)].share;
}

std::unique_ptr<Teacher> make_remote_teacher(const SessionModel& student,
                                             const distributed::DeviceMesh& mesh,
                                             const comm::ProcessGroup& link, at::Device device) {
  const bool is_first = mesh.group("tp").rank() == 0 && mesh.group("cp").rank() == 0;
  const LinkRole role{.is_teacher = false,
                      .replica = mesh.group("dp").rank(),
                      .speaks = is_first && mesh.group("pp").rank() == 0,
                      .has_losses = has_last_stage(student, mesh),
                      .share = {mesh.group("cp").rank(), mesh.size("cp")}};
  return std::make_unique<RemoteTeacher>(TeacherLink(link, role),
                                         student.parts.back()->loss_head().rows(), device);
}

void serve_student(const Recipe& recipe, const RunContext& context,
                   const comm::ProcessGroup& link) {
  // A preemption signal goes to all ranks; the student's end the run.
  const training::SignalWatch signals(recipe.step_scheduler.preemption_signal);
  const distributed::DeviceMesh mesh = build_mesh(teacher_recipe(recipe), *context.world);
  FrozenModel model(teacher_recipe(recipe), mesh, context.place());
  const LinkRole role{.is_teacher = true,
                      .replica = mesh.group("dp").rank(),
                      .speaks = has_last_stage(model.model(), mesh) &&
                                mesh.group("tp").rank() == 0 && mesh.group("cp").rank() == 0};
  const TeacherLink roles(link, role);
  comm::SlowWork& slow_work =
      context.world->slow_work(slow_work_options(recipe, *context.reporter));
  model.load(slow_work, *context.reporter);
  if (recipe.distillation->offloads_teacher) model.keep_on_host(*context.reporter);
  link.barrier();  // RemoteTeacher::load() waits for it
  TeacherServer(model, roles, mesh, context.place().device, teacher_recipe(recipe)).serve();
}

}  // namespace automodel::recipes
