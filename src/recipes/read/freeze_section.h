#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"

namespace automodel::recipes {

/// `freeze_config`: which parameters a run without adapters leaves as they are. The towers' keys
/// are upstream's of vision-language recipes.
struct FreezeSection {
  bool freeze_embeddings = false;
  std::vector<std::string> frozen_parameters;
  std::vector<std::string> trainable_parameters;
  bool freeze_vision_tower = true;
  bool freeze_audio_tower = false;
  bool freeze_video_embedder = false;
  bool freeze_language_model = false;

  /// Whether any parameter of a language model may be frozen.
  bool is_acting() const {
    return freeze_embeddings || freeze_language_model || !frozen_parameters.empty() ||
           !trainable_parameters.empty();
  }

  static constexpr auto fields() {
    using S = FreezeSection;
    constexpr const char* kNoTowers = "towers are not trained here; they are saved as they came";
    return std::tuple{
        field("freeze_embeddings", &S::freeze_embeddings,
              "embeddings of tokens and positions are not trained, nor a head tied to them"),
        field("frozen_parameters", &S::frozen_parameters,
              "regular expressions of Python's, searched in parameters' names: those are not "
              "trained")
            .or_one(),
        field("trainable_parameters", &S::trainable_parameters,
              "regular expressions of Python's, searched in parameters' names: the others are not "
              "trained; absent: all may be")
            .or_one(),
        field("freeze_vision_tower", &S::freeze_vision_tower, "a tower for images is not trained")
            .without_effect(kNoTowers),
        field("freeze_audio_tower", &S::freeze_audio_tower, "a tower for sound is not trained")
            .without_effect(kNoTowers),
        field("freeze_video_embedder", &S::freeze_video_embedder,
              "an embedder of videos is not trained")
            .without_effect(kNoTowers),
        field("freeze_language_model", &S::freeze_language_model,
              "the language model is not trained; it is all that is trained here, so only false "
              "is right")};
  }
};

}  // namespace automodel::recipes
