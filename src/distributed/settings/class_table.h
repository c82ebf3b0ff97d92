#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/reporter.h"

namespace automodel::distributed {

/// A class, or a function that makes one, that may be named by its path in Python.
struct ImportedClass {
  std::string path;                ///< its own path, whatever alias it was found under
  std::string name;                ///< the last component
  std::string kind;                ///< "layer", "experts", "module"; of a recipe: "optimizer", ...
  std::string unsupported_reason;  ///< not empty: known, but not in this version
};

/// Names of the classes of a model's layers and of their grouped experts; "" for none.
struct ModelClasses {
  std::string layer;
  std::string experts;
};

/// The classes that paths can mean, and which of them are a model's. Names are looked up, nothing
/// is imported: what a caller knows, of models too, is handed down in the table.
class ClassTable final {
 public:
  /// Adds a class under its path and the aliases; those that are there already stay.
  void add(const ImportedClass& found, const std::vector<std::string>& aliases = {});
  const ImportedClass* find(const std::string& path) const;
  /// Paths and aliases, sorted.
  std::vector<std::string> paths() const;
  /// The path of the class of this name and kind; nullopt when there is none.
  std::optional<std::string> path_of(const std::string& name, const std::string& kind) const;

  /// Says which classes those of a model are ("LlamaForCausalLM"); add() says where they are.
  void add_model(const std::string& architecture, ModelClasses classes);
  /// Empty names for a model that has not been added.
  ModelClasses of_model(const std::string& architecture) const;

 private:
  std::map<std::string, ImportedClass> classes_;
  std::map<std::string, ModelClasses> models_;  // by architecture
};

/// torch.nn.Embedding: what there is without any model.
ClassTable module_classes();

/// The class of a path such as "torch.optim.AdamW". UserError for a path without a dot or one that
/// is not in the table, with a suggestion; UnsupportedError for a class that this version lacks.
ImportedClass import_class_from_path(const std::string& path,
                                     const ClassTable& table = module_classes());

/// The classes of several paths, in order; one that fails is left out with the warning "Could not
/// import class from path ...".
std::vector<ImportedClass> import_classes_from_paths(const std::vector<std::string>& paths,
                                                     Reporter& reporter,
                                                     const ClassTable& table = module_classes());

}  // namespace automodel::distributed
