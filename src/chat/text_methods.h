#pragma once

#include <string_view>

#include "chat/value.h"

namespace automodel::chat {

/// Whether a value is markupsafe's Markup: a text that is not escaped again.
bool is_markup(const Value& value);
/// A text, or the texts of a list or tuple, as Markup where `original` is.
Value like_markup(Run& run, const Value& original, const Value& value);

/// The methods of str; nullptr when there is none of that name.
const Builtin* find_text_method(std::string_view name);

}  // namespace automodel::chat
