#pragma once

#include <string_view>

#include "chat/ast.h"
#include "chat/run.h"

namespace automodel::chat {

/// Python's + - * / // % ** of two values.
Value binary_operation(Run& run, Op op, const Value& left, const Value& right);
Value negative(Run& run, const Value& value);
Value positive(Run& run, const Value& value);
bool compare(Run& run, Comparison comparison, const Value& left, const Value& right);
/// value in container.
bool contains(Run& run, const Value& container, const Value& value);
/// object[start:stop:step]; missing parts are not given.
Value slice(Run& run, const Value& object, const Value& start, const Value& stop,
            const Value& step);

/// The sandbox's environment.getattr: object.name.
Value get_attribute(Run& run, const Value& object, const Value& name);
/// The sandbox's environment.getitem: object[key].
Value get_item(Run& run, const Value& object, const Value& key);
/// getattr(object, name) of Python; missing when there is none. `is_safe` becomes false for what
/// the sandbox does not hand out.
Value python_attribute(Run& run, const Value& object, std::string_view name, bool& is_safe);

}  // namespace automodel::chat
