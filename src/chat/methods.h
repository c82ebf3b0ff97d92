#pragma once

#include <string_view>

#include "chat/run.h"
#include "chat/value.h"

namespace automodel::chat {

/// The method of a kind of value; nullptr when there is none of that name. Throws Failure for one
/// that Python has and this engine does not.
const Builtin* find_method(Kind kind, std::string_view name);

/// Whether Python has an attribute of this name that is no method above (`__class__`).
bool is_internal_name(const Value& object, std::string_view name);

/// Whether Python's dict may have an attribute of this name; a key otherwise.
bool is_dict_attribute(std::string_view name);

/// An attribute of a macro (name, arguments ...); missing when it has none.
Value macro_attribute(Run& run, const Macro& macro, std::string_view name);

/// str.splitlines(): the lines, with their ends or without.
std::vector<std::string_view> split_lines(std::string_view text, bool keeps_ends);
/// str.replace(old, replacement, count); count < 0 replaces all.
std::string replaced(Run& run, std::string_view text, std::string_view old,
                     std::string_view replacement, int64_t count);
/// text.strip(characters).
std::string_view stripped_of(Run& run, std::string_view text, std::string_view characters,
                             bool at_left, bool at_right);

}  // namespace automodel::chat
