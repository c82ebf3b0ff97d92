#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chat/output.h"
#include "chat/value.h"

namespace automodel::chat {

/// What a rendering may use up at most.
struct Limits {
  int64_t max_steps = 20'000'000;      ///< operations; long texts count more
  size_t max_bytes = size_t{1} << 29;  ///< of all values that are made
  size_t max_output_bytes = size_t{1} << 26;
  int max_depth = 1200;  ///< of operations inside operations
};

/// The state of one rendering.
class Run final {
 public:
  /// The part of the output that a `{% generation %}` block wrote: bytes of the output before it,
  /// and its code points.
  struct Generation {
    size_t begin_byte = 0;
    int64_t num_points = 0;
  };

  /// `now`: seconds since the epoch for strftime_now, read as UTC.
  Run(Limits limits, int64_t now_) : arena(limits.max_bytes), now(now_), limits_(limits) {}

  /// Counts work; throws Failure when there is too much of it.
  void step(size_t count = 1) {
    num_steps_ += static_cast<int64_t>(count);
    if (num_steps_ > limits_.max_steps) fail_endless();
  }
  /// Counts work on a text.
  void step_bytes(size_t num_bytes) { step(1 + num_bytes / 32); }
  template <typename Texts>
  void check_output(const Texts& out) const {
    if (out.size() > limits_.max_output_bytes) fail_output();
  }

  Value text(std::string_view bytes) {  ///< copies
    return Value::from(arena.make<Text>(arena.copy(bytes)));
  }
  Value text_view(std::string_view bytes) { return Value::from(arena.make<Text>(bytes)); }
  Value undefined_variable(Value name) {
    return Value::from(arena.make<Undefined>(std::string_view{}, Value{}, name));
  }
  Value undefined_hint(std::string_view hint) {
    return Value::from(arena.make<Undefined>(arena.copy(hint), Value{}, Value{}));
  }
  Value undefined_member(Value object, Value name) {
    return Value::from(arena.make<Undefined>(std::string_view{}, object, name));
  }
  Value new_list(size_t capacity = 0, Kind kind = Kind::kList) {
    List* list = arena.make<List>();
    if (capacity > 0) {
      list->items = arena.make_array<Value>(capacity);
      list->capacity = capacity;
    }
    return Value::from(kind, list);
  }

  Arena arena;
  int64_t now;
  int depth = 0;
  Output* output = nullptr;      ///< what statements write to
  const Output* root = nullptr;  ///< the rendering itself, when output is another buffer
  std::vector<Generation> generations;

  /// Counts nested operations, so that no template overflows the stack.
  class Depth final {
   public:
    explicit Depth(Run& run) : run_(run) {
      if (++run_.depth > run_.limits_.max_depth) run_.fail_depth();
    }
    ~Depth() { --run_.depth; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Run& run_;
  };

 private:
  [[noreturn]] void fail_endless() const;
  [[noreturn]] void fail_output() const;
  [[noreturn]] void fail_depth();

  Limits limits_;
  int64_t num_steps_ = 0;
};

}  // namespace automodel::chat
