#pragma once

#include "chat/ast.h"

namespace automodel::chat {

/// Gives every variable of a template its place, by jinja2's rules of scope: which names a body
/// makes anew, and what they begin with. Also looks up filters and tests. Throws Failure.
void resolve_names(Program& program);

}  // namespace automodel::chat
