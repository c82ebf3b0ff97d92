#pragma once

#include "datasets/row_source.h"
#include "hub/hub.h"

namespace automodel::datasets {

/// The data sets of the hub among a source's paths: names that are no path here.
std::vector<hub::Repository> hub_data_sets(const SourceOptions& options);

/// Fetches of each of them what says which files it has: the listing and README.md.
void fetch_data_cards(hub::Hub& hub, const SourceOptions& options);

/// Fetches the files of the splits that the source reads, too. Throws InputError for splits and
/// configurations that are not there.
void fetch_data_files(hub::Hub& hub, const SourceOptions& options);

}  // namespace automodel::datasets
