#include "datasets/rows/data_layout.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "datasets/rows/data_card.h"
#include "tables/table_file.h"

namespace automodel::datasets {

namespace {

struct SplitWord {
  std::string_view word;
  std::string_view split;
};
constexpr std::array<SplitWord, 10> kSplitWords = {{{"train", "train"},
                                                    {"training", "train"},
                                                    {"validation", "validation"},
                                                    {"valid", "validation"},
                                                    {"val", "validation"},
                                                    {"dev", "validation"},
                                                    {"test", "test"},
                                                    {"testing", "test"},
                                                    {"eval", "test"},
                                                    {"evaluation", "test"}}};

/// The split that a file's name (or its folder's) speaks of: "train-00000.jsonl" is train.
std::optional<std::string_view> split_of_name(std::string_view relative) {
  size_t begin = 0;
  while (begin < relative.size()) {
    size_t end = begin;
    while (end < relative.size() && std::isalpha(static_cast<unsigned char>(relative[end]))) ++end;
    const std::string word = to_lower(relative.substr(begin, end - begin));
    for (const SplitWord& candidate : kSplitWords) {
      if (word == candidate.word) return candidate.split;
    }
    begin = std::max(end, begin + 1);
  }
  return std::nullopt;
}

/// "train_sft" of data/train_sft-00000-of-00004.parquet: such names say the split, whatever it is.
std::string split_of_shard(std::string_view relative) {
  if (!relative.starts_with("data/")) return "";
  const std::string_view name = relative.substr(5);
  const size_t of = name.find("-of-");
  if (of == std::string_view::npos || of < 7 || name.find('/') != std::string_view::npos) return "";
  const std::string_view number = name.substr(of - 5, 5);
  const bool is_number = std::all_of(number.begin(), number.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c));
  });
  return is_number && name[of - 6] == '-' ? std::string(name.substr(0, of - 6)) : "";
}

std::string_view without_packing(std::string_view path) {
  for (const std::string_view ending : {".gz", ".zst"}) {
    if (path.ends_with(ending)) return path.substr(0, path.size() - ending.size());
  }
  return path;
}

/// What reads a file; "" for one that nothing does.
std::string kind_of(std::string_view path) {
  if (path.ends_with(".parquet")) return "Parquet";
  if (path.ends_with(".arrow") || path.ends_with(".feather")) return "Arrow";
  if (path.ends_with(".csv") || path.ends_with(".tsv")) return "CSV";
  const std::string_view plain = without_packing(path);
  return plain.ends_with(".jsonl") || plain.ends_with(".json") ? "JSON" : "";
}

/// Files of one kind; of several kinds, the one that most files are of.
std::vector<std::string> of_one_kind(std::vector<std::string> files) {
  std::map<std::string, size_t> counts;
  for (const std::string& file : files) ++counts[kind_of(file)];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  std::erase_if(files, [&](const std::string& file) { return kind_of(file) != most->first; });
  return files;
}

/// Whether "a-z0" has a character.
bool is_in_set(char c, std::string_view set) {
  for (size_t i = 0; i < set.size(); ++i) {
    const bool is_range = i + 2 < set.size() && set[i + 1] == '-';
    if (is_range ? c >= set[i] && c <= set[i + 2] : c == set[i]) return true;
    if (is_range) i += 2;
  }
  return false;
}

void add(DataLayout& layout, const std::string& split, const std::string& file) {
  for (SplitFiles& one : layout.splits) {
    if (one.split != split) continue;
    one.files.push_back(file);
    return;
  }
  layout.splits.push_back({split, {file}});
}

DataLayout layout_by_names(const std::vector<std::string>& files, const std::string& folder) {
  DataLayout layout;
  const auto inside = [&](const std::string& file) { return file.substr(folder.size()); };
  const bool are_shards = std::any_of(files.begin(), files.end(), [&](const std::string& file) {
    return !split_of_shard(inside(file)).empty();
  });
  const bool are_named = std::any_of(files.begin(), files.end(), [&](const std::string& file) {
    return split_of_name(inside(file)).has_value();
  });
  for (const std::string& file : files) {
    std::string split = are_shards ? split_of_shard(inside(file)) : "";
    if (!are_shards) split = split_of_name(inside(file)).value_or("");
    if (split.empty() && (are_shards || are_named)) continue;
    add(layout, split, file);
  }
  return layout;
}

/// Data files below a folder ("" or ending with a slash), sorted.
std::vector<std::string> data_files(const std::vector<std::string>& files,
                                    const std::string& folder) {
  std::vector<std::string> found;
  for (const std::string& file : files) {
    const std::string name = file_name(file);
    const bool is_description =
        name == "dataset_infos.json" || name == "dataset_info.json" || name == "state.json";
    const bool is_hidden = file.starts_with('.') || file.find("/.") != std::string::npos;
    if (file.starts_with(folder) && is_data_name(file) && !is_description && !is_hidden) {
      found.push_back(file);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

DataLayout layout_in(const std::vector<std::string>& files, const std::string& folder,
                     const std::string& what) {
  const std::vector<std::string> found = data_files(files, folder);
  if (!found.empty()) return layout_by_names(of_one_kind(found), folder);
  const bool has_script = std::any_of(files.begin(), files.end(), [](const std::string& file) {
    return file.ends_with(".py") && file.find('/') == std::string::npos;
  });
  if (has_script) {
    throw UnsupportedError(cat(what,
                               " is made by a Python script, which is not run here: give a "
                               "revision with data files, such as refs/convert/parquet"));
  }
  throw InputError(cat(what, " holds no *.jsonl, *.json, *.parquet, *.arrow or *.csv file"));
}

const CardConfig& choose(const std::vector<CardConfig>& configs,
                         const std::optional<std::string>& name, const std::string& what) {
  std::vector<std::string> names;
  for (const CardConfig& config : configs) {
    names.push_back(config.name);
    if (name && config.name == *name) return config;
  }
  if (name) {
    throw InputError(cat(what, " has no configuration '", *name, "'", did_you_mean(*name, names),
                         "; its README.md has: ", join(names, ", ")));
  }
  for (const CardConfig& config : configs) {
    if (config.is_default) return config;
  }
  for (const CardConfig& config : configs) {
    if (config.name == "default") return config;
  }
  if (configs.size() == 1) return configs.front();
  throw InputError(cat(what, " has several configurations and no default one: choose by `name`; ",
                       "its README.md has: ", join(names, ", ")));
}

DataLayout layout_of_card(const CardConfig& config, const std::vector<std::string>& files,
                          const std::string& what) {
  std::string folder = config.folder.value_or("");
  if (folder == ".") folder.clear();
  if (!folder.empty() && !folder.ends_with('/')) folder += '/';
  if (config.data_files.empty()) return layout_in(files, folder, what);
  DataLayout layout;
  for (const CardFiles& entry : config.data_files) {
    std::vector<std::string> found;
    for (const std::string& pattern : entry.patterns) {
      for (const std::string& file : files) {
        const bool is_known = std::find(found.begin(), found.end(), file) != found.end();
        if (!is_known && is_data_name(file) && matches_pattern(file, folder + pattern)) {
          found.push_back(file);
        }
      }
    }
    if (found.empty()) {
      throw InputError(cat(what, ": no file that can be read is called ",
                           join(entry.patterns, " or "), ", as its README.md says of split '",
                           entry.split, "'"));
    }
    std::sort(found.begin(), found.end());
    for (const std::string& file : of_one_kind(found)) add(layout, entry.split, file);
  }
  return layout;
}

}  // namespace

bool is_data_name(std::string_view path) {
  return !kind_of(path).empty();
}

bool matches_pattern(std::string_view path, std::string_view pattern) {
  // Which beginnings of the path the pattern's beginning matches: no pattern takes long.
  std::vector<bool> is_matched(path.size() + 1, false);
  is_matched[0] = true;
  const auto step = [&](const auto& takes) {
    for (size_t i = path.size(); i > 0; --i) {
      is_matched[i] = is_matched[i - 1] && takes(path[i - 1]);
    }
    is_matched[0] = false;
  };
  for (size_t at = 0; at < pattern.size(); ++at) {
    const size_t close = pattern[at] == '[' ? pattern.find(']', at + 2) : std::string_view::npos;
    if (pattern[at] == '*') {
      const bool is_deep = pattern.substr(at).starts_with("**");
      const bool is_folders = pattern.substr(at).starts_with("**/");
      bool has_begun = false;
      for (size_t i = 0; i <= path.size(); ++i) {
        const bool is_behind_slash = i > 0 && path[i - 1] == '/';
        if (!is_deep && is_behind_slash) has_begun = false;
        const bool was_matched = is_matched[i];
        is_matched[i] = was_matched || (has_begun && (!is_folders || is_behind_slash));
        has_begun = has_begun || was_matched;
      }
      at += is_folders ? 2 : is_deep ? 1 : 0;
    } else if (close != std::string_view::npos) {
      const std::string_view set = pattern.substr(at + 1, close - at - 1);
      step([&](char c) { return is_in_set(c, set); });
      at = close;
    } else if (pattern[at] == '?') {
      step([](char c) { return c != '/'; });
    } else {
      step([&](char c) { return c == pattern[at]; });
    }
  }
  return is_matched[path.size()];
}

std::vector<std::string> DataLayout::files_of(const std::string& split,
                                              const std::string& what) const {
  std::vector<std::string> files;
  std::vector<std::string> names;
  for (const SplitFiles& one : splits) {
    if (split.empty() || one.split.empty() || one.split == split) {
      files.insert(files.end(), one.files.begin(), one.files.end());
    }
    names.push_back(one.split);
  }
  if (files.empty()) {
    throw InputError(cat(what, " has no split '", split, "'", did_you_mean(split, names),
                         "; by the names of its files it has: ", join(names, ", ")));
  }
  std::sort(files.begin(), files.end());
  return files;
}

DataLayout find_layout(const std::vector<std::string>& files, const std::string& card,
                       const std::optional<std::string>& name, const std::string& what) {
  const std::vector<CardConfig> configs = read_card(card, cat(what, ": README.md"));
  if (!configs.empty()) return layout_of_card(choose(configs, name, what), files, what);
  if (!name || *name == "default") return layout_in(files, "", what);
  const std::string folder = *name + "/";
  const bool is_there = std::any_of(files.begin(), files.end(), [&](const std::string& file) {
    return file.starts_with(folder);
  });
  if (!is_there) throw InputError(cat(what, " has no subset '", *name, "'"));
  return layout_in(files, folder, cat(what, "/", *name));
}

}  // namespace automodel::datasets
