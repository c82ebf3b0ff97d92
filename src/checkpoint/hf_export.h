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

/// What a Hugging Face folder is made of besides the values.
struct HfExport {
  Json config;                  ///< becomes config.json, with the exported dtype
  std::string original_folder;  ///< model the training began with, "" for none: split into files,
                                ///< dtypes and generation_config.json are taken from it
  /// Tensors of the original whose names begin with one of these are written as they are.
  std::vector<std::string> kept_prefixes;
  std::string tokenizer_folder;               ///< tokenizer files are copied from here, "" for none
  std::optional<std::string> chat_template;   ///< in place of the tokenizer's own
  int64_t max_file_bytes = int64_t{5} << 30;  ///< when there is no original to follow
  ByteCounter* progress = nullptr;            ///< counts what has been written
};

/// One weight file to be written and what goes into it.
struct HfFile {
  std::string name;                 ///< model-00001-of-00002.safetensors
  std::vector<TensorInfo> tensors;  ///< with the dtype in the file
};

/// Splits tensors into files: as the original folder does (names that are new to it go to its last
/// file), or greedily by size. Floating tensors get the original's dtype back, unless
/// they were quantized.
std::vector<HfFile> plan_hf_files(std::span<const TensorInfo> tensors, const HfExport& what);

/// The part of an export that falls to one of several ranks.
struct ExportShare {
  int rank = 0;
  int world = 1;
  ByteCounter* progress = nullptr;  ///< counts what has been written
};

/// Writes the files that fall to this rank (file i to rank i mod world). Any number of ranks of one
/// export may run at once.
std::vector<FileRecord> write_hf_weights(const std::string& folder, std::span<const HfFile> files,
                                         const TensorSource& source, const ExportShare& share);

/// Writes index, config.json, generation_config.json and the tokenizer's files; one rank, after all
/// weight files are there.
std::vector<FileRecord> write_hf_texts(const std::string& folder, std::span<const HfFile> files,
                                       const HfExport& what);

/// Copies a tokenizer's files, whichever of them are there. With a chat template, that is the only
/// one of the copy: chat_template.jinja, and none in tokenizer_config.json.
std::vector<FileRecord> copy_tokenizer_files(const std::string& from, const std::string& to,
                                             const std::optional<std::string>& chat_template = {});

/// All of the above in one process: a folder that transformers loads. Never holds more than a piece
/// of one tensor. Throws InputError (e.g. disk full).
std::vector<FileRecord> save_hf_folder(const std::string& folder, const TensorSource& source,
                                       const HfExport& what);

}  // namespace automodel::checkpoint
