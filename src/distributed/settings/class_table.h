#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/reporter.h"

namespace automodel::distributed {

/// A Python class, or a function that makes one, that a recipe may name by its path.
struct ImportedClass {
  std::string path;                ///< its own path, even if an alias was looked up
  std::string name;                ///< the last component
  std::string kind;                ///< "layer", "experts", "module"; in recipes "optimizer", ...
  std::string unsupported_reason;  ///< not empty: known, but not in this version
};

/// The class names of a model's layers and of their grouped experts; "" for none.
struct ModelClasses {
  std::string layer;
  std::string experts;
};

/// The classes that paths can name, and which of them belong to a model. Names are only looked up,
/// nothing is imported: the caller fills the table with the classes that it knows.
class ClassTable final {
 public:
  /// Adds a class under its path and the aliases; existing entries are kept.
  void add(const ImportedClass& found, const std::vector<std::string>& aliases = {});
  const ImportedClass* find(const std::string& path) const;
  /// Paths and aliases, sorted.
  std::vector<std::string> paths() const;
  /// The path of the class of this name and kind; nullopt when there is none.
  std::optional<std::string> path_of(const std::string& name, const std::string& kind) const;

  /// Sets the classes of a model ("LlamaForCausalLM"); add() adds them under their paths.
  void add_model(const std::string& architecture, ModelClasses classes);
  /// Empty names for a model that has not been added.
  ModelClasses of_model(const std::string& architecture) const;

 private:
  std::map<std::string, ImportedClass> classes_;
  std::map<std::string, ModelClasses> models_;  // by architecture
};

/// A table with torch.nn.Embedding, which exists without any model.
ClassTable module_classes();

/// The class of a path such as "torch.optim.AdamW". Throws UserError, with a suggestion, for a path
/// without a dot or one that is not in the table; UnsupportedError for a class that is not in this
/// version. The table is always handed in: optimizers, losses and datasets are of rooms above this
/// one. recipes::import_class_from_path, of a path alone, knows them all.
ImportedClass import_class_from_path(const std::string& path, const ClassTable& table);

/// The classes of several paths, in order; one that fails is left out with the warning "Could not
/// import class from path ...".
std::vector<ImportedClass> import_classes_from_paths(const std::vector<std::string>& paths,
                                                     Reporter& reporter, const ClassTable& table);

}  // namespace automodel::distributed
