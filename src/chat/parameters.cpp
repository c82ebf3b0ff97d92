#include "chat/parameters.h"

#include "core/text.h"

namespace automodel::chat {

Parameters::Parameters(const char* function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t num_required) {
  const std::span<const std::string_view> list(names.begin(), names.size());
  if (arguments.positional.size() > list.size()) {
    throw Failure(cat(function, "() takes at most ", list.size(), " arguments (",
                      arguments.positional.size(), " given)"));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const NamedValue& item : arguments.named) {
    size_t index = 0;
    while (index < list.size() && list[index] != item.name) ++index;
    if (index == list.size()) {
      throw Failure(cat(function, "() got an unexpected keyword argument '", item.name, "'"));
    }
    if (!values_[index].is_missing()) {
      throw Failure(cat(function, "() got multiple values for argument '", item.name, "'"));
    }
    values_[index] = item.value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (values_[i].is_missing()) {
      throw Failure(cat(function, "() missing 1 required positional argument: '", list[i], "'"));
    }
  }
}

int64_t Parameters::integer(Run& run, size_t index, int64_t fallback) const {
  return has(index) ? integer_argument(run, values_[index]) : fallback;
}

std::string Parameters::text(Run& run, size_t index, std::string_view fallback) const {
  return has(index) ? to_text(run, values_[index]) : std::string(fallback);
}

void check_positional(const char* function, const Arguments& arguments, size_t least, size_t most) {
  if (!arguments.named.empty()) {
    throw Failure(cat(function, "() takes no keyword arguments"));
  }
  const size_t count = arguments.positional.size();
  if (count < least) {
    throw Failure(cat(function, " expected at least ", least, " argument", least == 1 ? "" : "s",
                      ", got ", count));
  }
  if (count > most) {
    throw Failure(cat(function, " expected at most ", most, " argument", most == 1 ? "" : "s",
                      ", got ", count));
  }
}

std::string_view text_argument(Run& run, const char* function, const Value& value) {
  if (value.is_string()) {
    run.step_bytes(value.text->bytes.size());
    return value.text->bytes;
  }
  throw Failure(cat(function, " argument must be str, not ", type_name(value)));
}

int64_t integer_argument(Run& run, const Value& value) {
  if (value.is_integral()) return value.as_integer();
  if (value.is_undefined()) fail_undefined(run, value);
  throw Failure(cat("'", type_name(value), "' object cannot be interpreted as an integer"));
}

std::string to_text(Run& run, const Value& value) {
  std::string out;
  append_str(run, value, out);
  run.step_bytes(out.size());
  return out;
}

}  // namespace automodel::chat
