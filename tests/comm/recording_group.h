#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/groups/group_backend.h"
#include "comm/groups/process_group.h"
#include "core/text.h"

namespace automodel::comm {

/// What happened on a rank whose groups behave as those of an accelerator do, in order, and what
/// was done that such a device punishes with wrong numbers. Groups of one test share one.
class Recording final {
 public:
  void note(std::string line) { lines_.push_back(std::move(line)); }
  void mistake(std::string text) { mistakes_.push_back(std::move(text)); }

  /// What lines call the operations on a tensor's storage, e.g. the unit it belongs to.
  void name(const at::Tensor& tensor, const std::string& what) {
    names_[tensor.storage().unsafeGetStorageImpl()] = what;
  }
  std::string name_of(const at::Tensor& tensor, const std::string& otherwise) const {
    const auto found = names_.find(tensor.storage().unsafeGetStorageImpl());
    return found == names_.end() ? otherwise : found->second;
  }

  const std::vector<std::string>& lines() const { return lines_; }
  std::vector<std::string> take_lines() { return std::exchange(lines_, {}); }
  /// "all_gather layers.0: its output was written while it was under way", ...
  const std::vector<std::string>& mistakes() const { return mistakes_; }

 private:
  friend class RecordedFlight;
  friend class RecordingBackend;

  std::map<const c10::StorageImpl*, std::string> names_;
  std::vector<std::string> lines_;
  std::vector<std::string> mistakes_;
  std::vector<const class RecordedFlight*> under_way_;
};

/// Bytes that a tensor had when an operation was given it.
class GivenBytes final {
 public:
  GivenBytes() = default;
  explicit GivenBytes(const at::Tensor& tensor)
      : tensor_(tensor),
        begin_(static_cast<unsigned char*>(tensor.mutable_data_ptr())),
        size_(tensor.nbytes()),
        storage_data_(storage()._mutable_data_ptr_no_checks().get()) {}

  bool is_defined() const { return tensor_.defined(); }
  unsigned char* begin() const { return begin_; }
  unsigned char* end() const { return begin_ + size_; }
  bool overlaps(const GivenBytes& other) const {
    return begin_ < other.end() && other.begin_ < end();
  }

  /// Whether the tensor's memory was freed, exchanged or resized since.
  bool is_gone() const {
    return storage()._mutable_data_ptr_no_checks().get() != storage_data_ ||
           storage().nbytes() < static_cast<size_t>(begin_ + size_ - first_byte());
  }

 private:
  c10::StorageImpl& storage() const { return *tensor_.storage().unsafeGetStorageImpl(); }
  const unsigned char* first_byte() const {
    return static_cast<const unsigned char*>(storage_data_);
  }

  at::Tensor tensor_;
  unsigned char* begin_ = nullptr;
  size_t size_ = 0;
  const void* storage_data_ = nullptr;
};

/// An operation between its start and its wait. It runs on copies; what it was given shows poison
/// where its result will be.
class RecordedFlight final {
 public:
  /// `in` or `out` may be undefined; they may overlap.
  RecordedFlight(std::shared_ptr<Recording> record, std::string label, const at::Tensor& in,
                 const at::Tensor& out)
      : record_(std::move(record)), label_(std::move(label)) {
    record_->note(cat("start ", label_));
    if (in.defined()) in_ = GivenBytes(in), kept_ = in.clone();
    if (out.defined()) out_ = GivenBytes(out), result_ = out.clone();
    for (const RecordedFlight* other : record_->under_way_) {
      const bool is_shared =
          out_.overlaps(other->out_) || out_.overlaps(other->in_) || in_.overlaps(other->out_);
      if (is_shared) mistake(cat("it was given memory of ", other->label_, ", which is under way"));
    }
    record_->under_way_.push_back(this);
    poison_ = out.defined() && out.is_floating_point() ? 0xFF : 0x5A;
    std::fill(out_.begin(), out_.end(), poison_);
  }

  ~RecordedFlight() {
    if (!is_over_) mistake("nobody waited for it");
    end();
  }
  RecordedFlight(const RecordedFlight&) = delete;
  RecordedFlight& operator=(const RecordedFlight&) = delete;

  /// What the operation really runs on; the output begins as a copy of what was given.
  const at::Tensor& input() const { return kept_; }
  const at::Tensor& output() const { return result_; }

  /// The present stream has waited: the result is there.
  void land() {
    record_->note(cat("wait ", label_));
    end();
    if (in_.is_defined() && in_.is_gone()) {
      mistake("its input was freed while it was under way");
    } else if (in_.is_defined() && !has_kept_input()) {
      mistake("its input was written while it was under way");
    }
    if (!out_.is_defined()) return;
    if (out_.is_gone()) {
      mistake("its output was freed while it was under way");
      return;
    }
    if (!std::all_of(out_.begin(), out_.end(), [&](unsigned char it) { return it == poison_; })) {
      mistake("its output was written while it was under way");
    }
    if (result_.nbytes() > 0) {
      std::memcpy(out_.begin(), result_.const_data_ptr(), result_.nbytes());
    }
  }

 private:
  void mistake(const std::string& what) { record_->mistake(cat(label_, ": ", what)); }

  void end() {
    is_over_ = true;
    std::erase(record_->under_way_, this);
  }

  /// Apart from what the output covers.
  bool has_kept_input() const {
    const auto* kept = static_cast<const unsigned char*>(kept_.const_data_ptr());
    for (const unsigned char* it = in_.begin(); it < in_.end(); ++it, ++kept) {
      if (it >= out_.begin() && it < out_.end()) continue;
      if (*it != *kept) return false;
    }
    return true;
  }

  std::shared_ptr<Recording> record_;
  std::string label_;
  GivenBytes in_, out_;
  at::Tensor kept_, result_;
  unsigned char poison_ = 0;
  bool is_over_ = false;
};

/// A group that its caller sees as he sees one over an accelerator's streams: an operation takes
/// what it was given at its start, and its result is there once it has been waited for. Until then
/// the output is NaN (integers: 0x5A5A...), and whoever touches it is noted. The operations run on
/// the group inside from their start, so ranks may wait for several groups in any order.
class RecordingBackend final : public GroupBackend {
 public:
  RecordingBackend(ProcessGroup inner, std::shared_ptr<Recording> record)
      : inner_(std::move(inner)), record_(std::move(record)) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }

  std::unique_ptr<BackendWork> start(const Collective& collective) override {
    const std::string name(collective_name(collective.kind));
    if (collective.kind == CollectiveKind::kBarrier) {
      record_->note(name);
      inner_.barrier();
      return nullptr;
    }
    const bool has_whole_input = collective.kind == CollectiveKind::kReduceScatter ||
                                 collective.kind == CollectiveKind::kSend;
    const at::Tensor& named = has_whole_input ? collective.in : collective.out;
    auto flight = std::make_unique<RecordedFlight>(
        record_, cat(name, " ", record_->name_of(named, inner_.name())), collective.in,
        collective.out);
    Collective real = collective;  // on the flight's copies
    if (collective.out.defined()) real.out = flight->output();
    const bool is_in_place = collective.in.defined() && collective.in.is_same(collective.out);
    if (collective.in.defined()) real.in = is_in_place ? flight->output() : flight->input();
    Work work = inner_.start(real);
    // A broadcast is waited for, which is right over any group.
    if (collective.kind == CollectiveKind::kBroadcast) work.wait();
    return std::make_unique<Waiting>(std::move(flight), std::move(work));
  }

 private:
  using Flight = std::unique_ptr<RecordedFlight>;

  class Waiting final : public BackendWork {
   public:
    Waiting(Flight flight, Work work) : flight_(std::move(flight)), work_(std::move(work)) {}
    void wait() override {
      work_.wait();
      flight_->land();
    }
    bool is_done() override { return work_.is_done(); }

   private:
    Flight flight_;
    Work work_;
  };

  ProcessGroup inner_;
  std::shared_ptr<Recording> record_;
};

/// A group like `inner` that notes what is asked of it.
inline ProcessGroup recorded(const ProcessGroup& inner, const std::shared_ptr<Recording>& record) {
  return {inner.name(), std::make_shared<RecordingBackend>(inner, record)};
}

}  // namespace automodel::comm
