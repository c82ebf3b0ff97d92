#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "config/diagnostic.h"
#include "config/node.h"
#include "config/registry.h"
#include "core/field.h"
#include "datasets/retrieval/retrieval_dataset.h"
#include "recipes/read/dataset_recipe.h"

namespace automodel::recipes {

struct ModelRecipe;
struct OptimizerRecipe;
struct Recipe;

/// The recipe class that trains models which make embeddings of texts.
inline constexpr const char* kBiEncoderRecipe = "TrainBiEncoderRecipe";

/// Keys of `model` of models that make embeddings of texts.
struct BiEncoderSection {
  std::optional<std::string> pooling;
  std::optional<bool> l2_normalize;
  std::optional<bool> is_causal;
  bool do_distributed_inbatch_negative = false;
  bool detach_distributed_inbatch_negatives = true;
  std::optional<std::string> extract_submodel;

  static constexpr auto fields() {
    using S = BiEncoderSection;
    return std::tuple{
        field("pooling", &S::pooling,
              "how a text's hidden states become its embedding: avg, cls (the first token's), last "
              "or weighted_avg (the sum); absent: as the folder says, else avg"),
        field("l2_normalize", &S::l2_normalize,
              "embeddings have length 1, and scores are divided by the temperature; absent: as the "
              "folder says, else true"),
        field(
            "is_causal", &S::is_causal,
            "a token sees those before it alone; absent: as the folder of such a model says, else "
            "false"),
        field("do_distributed_inbatch_negative", &S::do_distributed_inbatch_negative,
              "a query is compared with the passages of all queries of its micro-batch, on all "
              "ranks"),
        field("detach_distributed_inbatch_negatives", &S::detach_distributed_inbatch_negatives,
              "false: passages of other ranks learn from a query too"),
        field("extract_submodel", &S::extract_submodel, "the part of the model that is trained")};
  }
};

/// Keys at the top of such a recipe.
struct EmbeddingKeys {
  double temperature = 1.0;

  static constexpr auto fields() {
    return std::tuple{field("temperature", &EmbeddingKeys::temperature,
                            "scores of embeddings of length 1 are divided by it")
                          .above(0)};
  }
};

/// Options of a retrieval data set; names and defaults are upstream's.
struct RetrievalDatasetSection {
  std::vector<config::Node> data_dir_list;
  std::string model_type = "bi_encoder";
  std::string data_type = "train";
  int64_t n_passages = 5;
  std::optional<int64_t> eval_negative_size;
  int64_t seed = 42;
  bool do_shuffle = false;
  std::optional<int64_t> max_train_samples;
  int64_t train_data_select_offset = 0;
  bool use_dataset_instruction = false;
  bool cycle_positive_docs = false;
  bool use_text_in_document = false;

  static constexpr auto fields() {
    using S = RetrievalDatasetSection;
    return std::tuple{
        field("data_dir_list", &S::data_dir_list,
              "what questions are read from, one or a list: a file of rows with query, pos_doc and "
              "neg_doc; a JSON file with corpus and data; hf://ORGANIZATION/NAME/SUBSET; or path "
              "(one of these) with num_samples, of which so many are drawn")
            .required()
            .or_one(),
        field("model_type", &S::model_type, "bi_encoder, for models that make embeddings"),
        field("data_type", &S::data_type, "train, or eval for validation"),
        field("n_passages", &S::n_passages,
              "passages of a question: one that answers it, and others that do not")
            .at_least(1)
            .at_most(1e6),
        field("eval_negative_size", &S::eval_negative_size,
              "of data_type eval: passages that do not answer a question; absent: n_passages - 1")
            .at_least(0)
            .at_most(1e6),
        field("seed", &S::seed, "of the draws of num_samples, and of do_shuffle")
            .at_least(0)
            .at_most(4294967295.0),
        field("do_shuffle", &S::do_shuffle, "shuffle the questions before max_train_samples"),
        field("max_train_samples", &S::max_train_samples, "use so many questions").at_least(1),
        field("train_data_select_offset", &S::train_data_select_offset,
              "the first of them that max_train_samples takes")
            .at_least(0),
        field("use_dataset_instruction", &S::use_dataset_instruction,
              "give texts the instructions of their corpus, for a collate_fn that asks for them"),
        field("cycle_positive_docs", &S::cycle_positive_docs,
              "take another of a question's answers each epoch"),
        field("use_text_in_document", &S::use_text_in_document, "the text of images too")
            .without_effect("there are no images here")};
  }
};

/// The makers of a retrieval data set (DatasetMaker).
std::unique_ptr<DatasetRecipe> read_retrieval_dataset(const config::Target& target,
                                                      config::Diagnostics& diagnostics);

/// The options of such a data set, for the recipes' schema.
Json retrieval_dataset_schema();

/// Reads the optimizer of a retrieval recipe: norms and biases are not decayed, as upstream.
OptimizerRecipe read_retrieval_optimizer(const config::Node& node,
                                         config::Diagnostics& diagnostics);

/// Makes plan.hf_config, where it is here, that of its family's model which makes embeddings, by
/// the keys `encoder` of the model section.
void make_embedder(const config::Node& target_name, const config::Node& arguments,
                   ModelRecipe& plan, config::Diagnostics& diagnostics);

/// Refuses models, datasets, collaters and recipe classes that do not go with each other, and warns
/// of what a retrieval recipe does not read. Reads `temperature`.
void check_retrieval(const config::Node& root, Recipe& recipe, config::Diagnostics& diagnostics);

/// The recipe's sections, of which the tokenizer at the top of a retrieval recipe is that of its
/// data sets.
config::Node with_retrieval_defaults(config::Node root);

/// What Sentence Transformers do not know of how the recipe's model makes embeddings; "" where they
/// can make them.
std::string sentence_obstacle(const Recipe& recipe);

/// How the data sets of a retrieval recipe write their texts.
datasets::RetrievalTexts retrieval_texts(const Recipe& recipe, bool is_validation);

}  // namespace automodel::recipes
