#include "distributed/settings/class_table.h"

#include <utility>

#include "core/error.h"

namespace automodel::distributed {

namespace {

std::string last_component(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

}  // namespace

void ClassTable::add(const ImportedClass& found, const std::vector<std::string>& aliases) {
  classes_.emplace(found.path, found);
  for (const std::string& alias : aliases) classes_.emplace(alias, found);
}

const ImportedClass* ClassTable::find(const std::string& path) const {
  const auto found = classes_.find(path);
  return found == classes_.end() ? nullptr : &found->second;
}

std::vector<std::string> ClassTable::paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, found] : classes_) paths.push_back(path);
  return paths;
}

std::optional<std::string> ClassTable::path_of(const std::string& name,
                                               const std::string& kind) const {
  for (const auto& [path, found] : classes_) {
    if (found.name == name && found.kind == kind) return found.path;
  }
  return std::nullopt;
}

void ClassTable::add_model(const std::string& architecture, ModelClasses classes) {
  models_.emplace(architecture, std::move(classes));
}

ModelClasses ClassTable::of_model(const std::string& architecture) const {
  const auto found = models_.find(architecture);
  return found == models_.end() ? ModelClasses{} : found->second;
}

ClassTable module_classes() {
  ClassTable table;
  table.add({"torch.nn.Embedding", "Embedding", "module", ""},
            {"torch.nn.modules.sparse.Embedding"});
  return table;
}

ImportedClass import_class_from_path(const std::string& path, const ClassTable& table) {
  const ImportedClass* found = table.find(path);
  if (found != nullptr && found->unsupported_reason.empty()) return *found;
  if (found != nullptr) {
    throw UnsupportedError(cat(path, " is not in this version: ", found->unsupported_reason));
  }
  if (path.find('.') == std::string::npos) {
    throw UserError(cat("'", path, "' is no path of a class: expected module.Class"));
  }
  // A class of the same name in another module is a better suggestion than a path spelt similarly.
  for (const std::string& known : table.paths()) {
    if (last_component(known) == last_component(path)) {
      throw UserError(cat("no class ", path, "; did you mean '", known, "'?"));
    }
  }
  throw UserError(cat("no class ", path, did_you_mean(path, table.paths())));
}

std::vector<ImportedClass> import_classes_from_paths(const std::vector<std::string>& paths,
                                                     Reporter& reporter, const ClassTable& table) {
  std::vector<ImportedClass> classes;
  for (const std::string& path : paths) {
    try {
      classes.push_back(import_class_from_path(path, table));
    } catch (const UserError& error) {
      reporter.warning(cat("Could not import class from path ", path, ": ", error.what()));
    }
  }
  return classes;
}

}  // namespace automodel::distributed
