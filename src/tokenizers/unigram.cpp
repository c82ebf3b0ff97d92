#include "core/error.h"
#include "tokenizers/component.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/token_model.h"
namespace automodel::tokenizers {
std::unique_ptr<Model> make_unigram(Document& document, const Json& settings) {
  Component(settings, document.name, "model").fail("not supported in this version");
}
std::unique_ptr<Normalizer> make_precompiled(const Component& component) {
  component.fail("not supported in this version");
}
}  // namespace automodel::tokenizers
