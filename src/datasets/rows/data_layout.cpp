#include "datasets/rows/data_layout.h"

#include <algorithm>
#include <cctype>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "datasets/rows/data_card.h"
#include "tables/table_file.h"

namespace automodel::datasets {

namespace {

/// The splits that names of files and folders speak of, in the order in which a data set has them,
/// and the words for each.
struct SplitWords {
  std::string_view split;
  std::vector<std::string_view> words;
};
const std::vector<SplitWords> kSplits = {{"train", {"train", "training"}},
                                         {"validation", {"validation", "valid", "dev", "val"}},
                                         {"test", {"test", "testing", "eval", "evaluation"}}};

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

/// Files of one kind; of several kinds, the one that most files are of, of equally many the first
/// of the list.
std::vector<std::string> of_one_kind(std::vector<std::string> files) {
  std::string most;
  int64_t most_files = 0;
  for (const char* kind : {"Parquet", "JSON", "CSV", "Arrow"}) {
    const int64_t count = std::count_if(
        files.begin(), files.end(), [&](const std::string& file) { return kind_of(file) == kind; });
    if (count <= most_files) continue;
    most_files = count;
    most = kind;
  }
  std::erase_if(files, [&](const std::string& file) { return kind_of(file) != most; });
  return files;
}

/// Whether "a-z0" has a character. "!a-z0" has those that it lacks, but no slash.
bool is_in_set(char c, std::string_view set) {
  const bool is_negated = set.starts_with('!');
  if (is_negated) set.remove_prefix(1);
  bool is_listed = false;
  for (size_t i = 0; i < set.size(); ++i) {
    const bool is_range = i + 2 < set.size() && set[i + 1] == '-';
    is_listed = is_listed || (is_range ? c >= set[i] && c <= set[i + 2] : c == set[i]);
    if (is_range) i += 2;
  }
  return is_negated ? !is_listed && c != '/' : is_listed;
}

void add(DataLayout& layout, const std::string& split, const std::string& file) {
  for (SplitFiles& one : layout.splits) {
    if (one.split != split) continue;
    const bool is_new = std::find(one.files.begin(), one.files.end(), file) == one.files.end();
    if (is_new) one.files.push_back(file);
    return;
  }
  layout.splits.push_back({split, {file}});
}

/// Splits by words in the names of folders (`are_folders`) or files: a word stands alone, or apart
/// from others by one of "-._ " or a digit.
DataLayout layout_by_words(const std::vector<std::string>& files, const std::string& folder,
                           bool are_folders) {
  const std::vector<const char*> patterns =
      are_folders
          ? std::vector<const char*>{"**/WORD/**", "**/WORD[-._ 0-9]*/**", "**/*[-._ 0-9]WORD/**",
                                     "**/*[-._ 0-9]WORD[-._ 0-9]*/**"}
          : std::vector<const char*>{"**/WORD[-._ 0-9]*", "**/*[-._ 0-9]WORD[-._ 0-9]*"};
  DataLayout layout;
  for (const SplitWords& split : kSplits) {
    for (const std::string_view word : split.words) {
      for (const char* pattern : patterns) {
        const std::string own = replace_all(pattern, "WORD", std::string(word));
        for (const std::string& file : files) {
          const std::string_view inside = std::string_view(file).substr(folder.size());
          if (matches_pattern(inside, own)) add(layout, std::string(split.split), file);
        }
      }
    }
  }
  return layout;
}

DataLayout layout_of_shards(const std::vector<std::string>& files, const std::string& folder) {
  DataLayout layout;
  for (const std::string& file : files) {
    const std::string split = split_of_shard(std::string_view(file).substr(folder.size()));
    if (!split.empty()) add(layout, split, file);
  }
  const auto place = [](const SplitFiles& one) {
    const auto usual = std::ranges::find(kSplits, std::string_view(one.split), &SplitWords::split);
    return std::pair(usual - kSplits.begin(), one.split);
  };
  std::ranges::sort(layout.splits, {}, place);
  return layout;
}

/// As the datasets package reads names: shards of splits, else folders of splits, else files of
/// splits, else all files are for training.
DataLayout layout_by_names(const std::vector<std::string>& files, const std::string& folder) {
  DataLayout layout = layout_of_shards(files, folder);
  if (layout.splits.empty()) layout = layout_by_words(files, folder, true);
  if (layout.splits.empty()) layout = layout_by_words(files, folder, false);
  if (layout.splits.empty()) layout.splits.push_back({"train", files});
  return layout;
}

/// Data files below a folder ("" or ending with a slash), sorted.
std::vector<std::string> data_files(const std::vector<std::string>& files,
                                    const std::string& folder) {
  std::vector<std::string> found;
  const bool has_arrow = std::any_of(
      files.begin(), files.end(), [](const std::string& file) { return kind_of(file) == "Arrow"; });
  for (const std::string& file : files) {
    const std::string name = file_name(file);
    const bool is_description = name == "dataset_infos.json" || name == "dataset_info.json" ||
                                name == "dataset_dict.json" || name == "config.json" ||
                                (name == "state.json" && has_arrow);  // of save_to_disk
    const std::string inside = "/" + file;
    const bool is_hidden = inside.find("/.") != std::string::npos ||
                           inside.substr(0, inside.rfind('/')).find("/__") != std::string::npos;
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

/// "data/x" of "./data/x", "" of ".".
std::string without_dot(std::string path) {
  while (path.starts_with("./")) path.erase(0, 2);
  return path == "." ? "" : path;
}

DataLayout layout_of_card(const CardConfig& config, const std::vector<std::string>& files,
                          const std::string& what) {
  std::string folder = without_dot(config.folder.value_or(""));
  if (!folder.empty() && !folder.ends_with('/')) folder += '/';
  if (config.data_files.empty()) return layout_in(files, folder, what);
  DataLayout layout;
  for (const CardFiles& entry : config.data_files) {
    std::vector<std::string> found;
    for (const std::string& pattern : entry.patterns) {
      const std::string whole = folder + without_dot(pattern);
      std::vector<std::string> matches;
      for (const std::string& file : files) {
        const bool is_known = std::find(found.begin(), found.end(), file) != found.end();
        if (!is_known && is_data_name(file) && matches_pattern(file, whole))
          matches.push_back(file);
      }
      std::sort(matches.begin(), matches.end());
      found.insert(found.end(), matches.begin(), matches.end());
    }
    if (found.empty()) {
      throw InputError(cat(what, ": no file that can be read is called ",
                           join(entry.patterns, " or "), ", as its README.md says of split '",
                           entry.split, "'"));
    }
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
    if (split.empty() || one.split == split) {
      files.insert(files.end(), one.files.begin(), one.files.end());
    }
    names.push_back(one.split);
  }
  if (files.empty()) {
    throw InputError(cat(what, " has no split '", split, "'", did_you_mean(split, names),
                         "; by the names of its files it has: ", join(names, ", ")));
  }
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
