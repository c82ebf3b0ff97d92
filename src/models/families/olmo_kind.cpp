#include "models/families/olmo_kind.h"

#include "core/text.h"

namespace automodel::models::decoder {

double read_clip_qkv(ConfigReader& reader) {
  if (!reader.has("clip_qkv")) return 0;
  const double bound = reader.number("clip_qkv", 1);
  if (bound > 0) return bound;
  reader.problem(cat("clip_qkv is ", bound, "; it must be above 0, or null for no bound"));
  return 0;
}

}  // namespace automodel::models::decoder
