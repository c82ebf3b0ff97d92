#pragma once

#include "datasets/rows/row_source.h"
#include "hub/hub.h"

namespace automodel::datasets {

/// The hub data sets among a source's paths: names that do not exist as paths here.
std::vector<hub::Repository> hub_data_sets(const SourceOptions& options);

/// Fetches for each of them what lists its files: the listing and README.md.
void fetch_data_cards(hub::Hub& hub, const SourceOptions& options);

/// Also fetches the files of the splits that the source reads. Throws InputError for unknown splits
/// and configurations.
void fetch_data_files(hub::Hub& hub, const SourceOptions& options);

}  // namespace automodel::datasets
