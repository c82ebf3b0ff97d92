#include "chat/run.h"

#include "core/text.h"

namespace automodel::chat {

void Run::fail_endless() const {
  throw Failure(cat("the template takes too long: more than ", limits_.max_steps,
                    " operations; does a loop go on for ever?"));
}

void Run::fail_output() const {
  throw Failure(cat("the template writes more than ", format_bytes(limits_.max_output_bytes)));
}

void Run::fail_depth() {
  --depth;  // no object is there to do it
  throw Failure("maximum recursion depth exceeded");
}

}  // namespace automodel::chat
