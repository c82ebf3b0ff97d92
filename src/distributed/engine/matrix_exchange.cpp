#include "distributed/engine/matrix_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/json.h"

namespace automodel::distributed {

using tensor::FlatSegment;

namespace {

/// A rank's parts, as the others are told of them.
std::string parts_text(const std::vector<FlatSegment>& parts) {
  Json rows = Json::array();
  for (const FlatSegment& part : parts) {
    AM_CHECK(part.spec.global_shape.size() == 2 && part.spec.box_shape == part.spec.global_shape,
             part.fqn, " is no matrix, or split by another axis");
    Json row = Json::object();
    row["name"] = part.fqn;
    row["rows"] = part.spec.global_shape[0];
    row["columns"] = part.spec.global_shape[1];
    row["begin"] = part.spec.flat_begin;
    row["end"] = part.spec.flat_end;
    rows.push_back(std::move(row));
  }
  return rows.dump();
}

/// Where each rank's numbers begin in a buffer that has them one after the other.
std::vector<int64_t> begins(const std::vector<int64_t>& counts) {
  std::vector<int64_t> first(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), first.begin(), int64_t{0});
  return first;
}

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

MatrixExchange::MatrixExchange(comm::ProcessGroup group, const std::vector<FlatSegment>& parts,
                               at::Device device)
    : group_(std::move(group)), device_(device) {
  std::map<std::string, Matrix> by_name;
  const std::vector<std::string> texts = group_.all_gather_text(parts_text(parts));
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const Json rows = Json::parse(texts[rank], "parts of a rank");
    for (const Json& row : rows.as_array()) {
      Matrix& matrix = by_name[row.at("name").as_string()];
      matrix.rows = row.at("rows").as_int();
      matrix.columns = row.at("columns").as_int();
      matrix.holders.resize(texts.size());
      Holder& holder = matrix.holders[rank];
      AM_CHECK(holder.begin == holder.end, "two parts of ", row.at("name").as_string());
      holder.begin = row.at("begin").as_int();
      holder.end = row.at("end").as_int();
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    by_name.at(parts[i].fqn).own_part = static_cast<int64_t>(i);
  }
  for (auto& [name, matrix] : by_name) matrices_.push_back(std::move(matrix));
  // Matrices of a batch are computed side by side: similar ones end together.
  std::ranges::stable_sort(matrices_, std::greater(),
                           [](const Matrix& matrix) { return matrix.rows * matrix.columns; });
  for (size_t i = 0; i < matrices_.size(); ++i) {
    choose_senders(matrices_[i], static_cast<int>(i % texts.size()));
  }
}

/// Each piece is sent by its owner where that holds it, else by the holder that is next in turn.
void MatrixExchange::choose_senders(Matrix& matrix, int owner) const {
  std::map<int64_t, std::vector<size_t>> holders;  // by the piece's beginning
  for (size_t rank = 0; rank < matrix.holders.size(); ++rank) {
    const Holder& holder = matrix.holders[rank];
    if (holder.begin < holder.end) holders[holder.begin].push_back(rank);
  }
  int64_t next = 0;
  for (const auto& [begin, ranks] : holders) {
    const int64_t end = matrix.holders[ranks[0]].end;
    AM_CHECK(begin == next, "parts of a matrix leave a gap");
    for (const size_t rank : ranks) AM_CHECK(matrix.holders[rank].end == end);
    const auto own = std::ranges::find(ranks, static_cast<size_t>(owner));
    const size_t sender =
        own != ranks.end() ? *own : ranks[static_cast<size_t>(owner) % ranks.size()];
    matrix.holders[sender].sends = true;
    next = end;
  }
  AM_CHECK(next == matrix.rows * matrix.columns, "parts of a matrix leave a gap");
}

void MatrixExchange::run(const tensor::MatrixStep& step) const {
  const auto count = static_cast<size_t>(group_.size());
  for (size_t first = 0; first < matrices_.size(); first += count) run_batch(first, step);
}

void MatrixExchange::run_batch(size_t first, const tensor::MatrixStep& step) const {
  const auto rank = static_cast<size_t>(group_.rank());
  const size_t count = std::min(matrices_.size() - first, static_cast<size_t>(group_.size()));
  const Matrix* const owned = rank < count ? &matrices_[first + rank] : nullptr;
  const auto empty = [&](int64_t numel) {
    return at::empty({numel}, at::TensorOptions().dtype(at::kFloat).device(device_));
  };
  // Numbers that go to each owner, those that come from each sender, and how many each of the
  // holders gets back.
  std::vector<int64_t> given(static_cast<size_t>(group_.size()));
  std::vector<int64_t> held = given, taken = given, returned = given;
  for (size_t owner = 0; owner < count; ++owner) {
    const Holder& own = matrices_[first + owner].holders[rank];
    held[owner] = own.end - own.begin;
    if (own.sends) given[owner] = held[owner];
  }
  for (size_t peer = 0; owned != nullptr && peer < owned->holders.size(); ++peer) {
    const Holder& holder = owned->holders[peer];
    returned[peer] = holder.end - holder.begin;
    if (holder.sends) taken[peer] = returned[peer];
  }
  const at::Tensor sent = empty(sum(given));
  const std::vector<int64_t> given_at = begins(given);
  for (size_t owner = 0; owner < count; ++owner) {
    if (given[owner] == 0) continue;
    step.read(static_cast<size_t>(matrices_[first + owner].own_part),
              sent.narrow(0, given_at[owner], given[owner]));
  }
  const at::Tensor received = empty(sum(taken));
  group_.all_to_all(received, sent, {.out = taken, .in = given});

  const at::Tensor results = empty(sum(returned));
  if (owned != nullptr) {
    const at::Tensor whole = empty(owned->rows * owned->columns);
    const std::vector<int64_t> taken_at = begins(taken);
    const std::vector<int64_t> returned_at = begins(returned);
    for (size_t peer = 0; peer < taken.size(); ++peer) {
      whole.narrow(0, owned->holders[peer].begin, taken[peer])
          .copy_(received.narrow(0, taken_at[peer], taken[peer]));
    }
    const at::Tensor changed = step.compute(whole.view({owned->rows, owned->columns})).flatten();
    for (size_t peer = 0; peer < returned.size(); ++peer) {
      results.narrow(0, returned_at[peer], returned[peer])
          .copy_(changed.narrow(0, owned->holders[peer].begin, returned[peer]));
    }
  }
  const at::Tensor changed = empty(sum(held));
  group_.all_to_all(changed, results, {.out = held, .in = returned});
  const std::vector<int64_t> held_at = begins(held);
  for (size_t owner = 0; owner < count; ++owner) {
    if (held[owner] == 0) continue;
    step.write(static_cast<size_t>(matrices_[first + owner].own_part),
               changed.narrow(0, held_at[owner], held[owner]));
  }
}

tensor::MatrixStepperMaker matrix_stepper_maker(const comm::ProcessGroup& group,
                                                at::Device device) {
  return [group, device](const std::vector<FlatSegment>& parts) -> tensor::MatrixStepper {
    auto exchange = std::make_shared<MatrixExchange>(group, parts, device);
    return [exchange](const tensor::MatrixStep& step) { exchange->run(step); };
  };
}

}  // namespace automodel::distributed
