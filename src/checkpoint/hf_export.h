#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/hf_folder.h"
#include "checkpoint/tensor_source.h"
#include "core/checksum.h"
#include "core/json.h"

namespace automodel::checkpoint {

/// A text that a folder has.
struct TextFile {
  std::string path;  ///< below the folder: 1_Pooling/config.json
  std::string text;
};

/// The contents of a Hugging Face folder besides the tensors' values.
struct HfExport {
  Json config;                  ///< becomes config.json, with the exported dtype
  std::string original_folder;  ///< folder of the base model, "" for none: split into files,
                                ///< dtypes and generation_config.json are taken from it
  /// Tensors of the original whose names begin with one of these are copied unchanged.
  std::vector<std::string> kept_prefixes;
  std::string tokenizer_folder;              ///< tokenizer files are copied from here, "" for none
  std::optional<std::string> chat_template;  ///< replaces the tokenizer's own
  /// Tokens that end what is generated, besides those that generation_config.json names.
  std::vector<int64_t> end_tokens;
  bool generates = true;                      ///< else there is no generation_config.json
  std::vector<TextFile> more_files;           ///< written as they are
  int64_t max_file_bytes = int64_t{5} << 30;  ///< used when there is no original
  ByteCounter* progress = nullptr;            ///< counts what has been written
};

/// A weight file to be written, and its tensors.
struct HfFile {
  std::string name;                 ///< model-00001-of-00002.safetensors
  std::vector<TensorInfo> tensors;  ///< with the dtype in the file
};

/// Splits tensors into files: as the original folder does (new names go to its last file), or
/// greedily by size. Floating-point tensors get the original's dtype, unless they were quantized.
std::vector<HfFile> plan_hf_files(std::span<const TensorInfo> tensors, const HfExport& what);

/// One of several ranks' part of an export.
struct ExportShare {
  int rank = 0;
  int world = 1;
  ByteCounter* progress = nullptr;  ///< counts what has been written
};

/// Writes this rank's files (file i is written by rank i mod world). The ranks of one export may
/// run at the same time.
std::vector<FileRecord> write_hf_weights(const std::string& folder, std::span<const HfFile> files,
                                         const TensorSource& source, const ExportShare& share);

/// Writes index, config.json, generation_config.json and the tokenizer's files; called by one rank
/// after all weight files are written.
std::vector<FileRecord> write_hf_texts(const std::string& folder, std::span<const HfFile> files,
                                       const HfExport& what);

/// Copies those of a tokenizer's files that exist. With a chat template the copy has only that one,
/// in chat_template.jinja and not in tokenizer_config.json.
std::vector<FileRecord> copy_tokenizer_files(const std::string& from, const std::string& to,
                                             const std::optional<std::string>& chat_template = {});

/// The path of a folder that a command is asked to make, without ".." in it: folders on the way are
/// made, after which "new/../there" would be there. Throws InputError where something is there.
std::string new_folder(const std::string& path);

/// Does all of the above in one process; transformers can load the folder. Holds at most a piece of
/// one tensor in memory. Throws InputError (e.g. disk full).
std::vector<FileRecord> save_hf_folder(const std::string& folder, const TensorSource& source,
                                       const HfExport& what);

}  // namespace automodel::checkpoint
