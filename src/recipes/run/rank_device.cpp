#include "recipes/run/rank_device.h"

#include <ATen/Context.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/watch/device_errors.h"
#include "core/error.h"
#include "core/system_limits.h"
#include "kernels/cpu/kind.h"

namespace automodel::recipes {

namespace {

/// First letter of the text in which a rank sends the others what it found; the rest is
/// Offer::text.
constexpr char kUnwanted = 'u', kDevice = 'd', kNone = 'n', kBroken = 'b';

struct Offer {
  char kind = kUnwanted;
  std::string text;  ///< the device's identity, or why there is none
};

std::string name_ranks(const std::vector<int64_t>& ranks) {
  return cat(ranks.size() == 1 ? "rank " : "ranks ", join(ranks, ", "));
}

std::string reason_of(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

Offer look_for_device(const DeviceRequest& request, const OpenCuda& open, RankDevice& place) {
  if (!request.is_wanted) return {};
  try {
    place.cuda = open();
  } catch (const UnsupportedError& error) {
    return {kNone, error.what()};
  }
  try {
    const int count = place.cuda->device_count();
    if (count == 0) return {kNone, "this machine has no CUDA device"};
    const int index = count == 1 ? 0 : request.local_rank;
    if (index >= count) {
      return {kNone, cat("rank ", request.local_rank, " of its machine has none of the ", count,
                         " devices")};
    }
    place.cuda->set_device(index);
    place.device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
    return {kDevice, place.cuda->device_identity(index)};
  } catch (const std::exception& error) {
    return {kBroken, reason_of(error)};
  }
}

std::vector<int64_t> ranks_of(const std::vector<Offer>& offers, char kind) {
  std::vector<int64_t> ranks;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (offers[rank].kind == kind) ranks.push_back(static_cast<int64_t>(rank));
  }
  return ranks;
}

void check_own(const std::vector<Offer>& offers) {
  std::map<std::string, std::vector<int64_t>> ranks_of_device;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (offers[rank].text.empty()) continue;
    ranks_of_device[offers[rank].text].push_back(static_cast<int64_t>(rank));
  }
  for (const auto& [device, ranks] : ranks_of_device) {
    if (ranks.size() == 1) continue;
    throw UserError(cat(name_ranks(ranks), " have the same CUDA device (", device,
                        "): start one rank a device, or train on the CPU with --device cpu"),
                    ExitCode::kRankFailed);
  }
}

}  // namespace

RankDevice agree_on_device(const DeviceRequest& request, const comm::ProcessGroup& group,
                           const OpenCuda& open, Reporter& reporter) {
  RankDevice place;
  const Offer own = look_for_device(request, open, place);
  std::vector<Offer> offers;
  for (const std::string& text : group.all_gather_text(cat(std::string(1, own.kind), own.text))) {
    offers.push_back({text.at(0), text.substr(1)});
  }
  const std::vector<int64_t> broken = ranks_of(offers, kBroken);
  const std::vector<int64_t> without = ranks_of(offers, kNone);
  const std::vector<int64_t> with = ranks_of(offers, kDevice);
  const auto text_of = [&](int64_t rank) { return offers[static_cast<size_t>(rank)].text; };
  if (!broken.empty()) {
    throw UserError(
        cat(name_ranks(broken), " cannot use ",
            broken.size() == 1 ? "its CUDA device: " : "their CUDA devices: ", text_of(broken[0])),
        ExitCode::kRankFailed);
  }
  if (with.size() == offers.size()) {
    check_own(offers);
    reporter.info(cat("device: ", place.cuda->device_name(place.device.index())));
    return place;
  }
  if (!with.empty()) {
    throw UserError(cat(name_ranks(without), without.size() == 1 ? " has" : " have",
                        " no CUDA device (", text_of(without[0]), "), but rank ", with[0],
                        " has one: every rank needs its own, or train on the CPU with --device "
                        "cpu"),
                    ExitCode::kRankFailed);
  }
  if (without.empty()) return {};
  if (request.is_demanded) throw UnsupportedError(cat("--device cuda: ", text_of(without[0])));
  reporter.warning(cat("dist_env.backend nccl needs a GPU: training on the CPU with gloo (",
                       text_of(without[0]), ")"));
  return {};
}

void set_matmul_precision(MatmulPrecision precision, const at::Device& device, Reporter& reporter) {
  kernels::cpu::allow_float_parts(precision != MatmulPrecision::kIeee);
  const bool is_high = precision == MatmulPrecision::kHigh;
  if (is_high && device.is_cpu()) {
    reporter.info("float32_matmul_precision high is for GPUs: on the CPU it is as highest");
  }
  at::globalContext().setFloat32MatmulPrecision(is_high && device.is_cuda() ? "high" : "highest");
}

launcher::RankOutcome outcome_of(const std::exception& error) {
  if (const auto* known = dynamic_cast<const UserError*>(&error)) {
    return {static_cast<int>(known->code()), known->what()};
  }
  if (const auto text = thread_shortage(error)) {
    return {static_cast<int>(ExitCode::kRankFailed), *text};
  }
  if (const auto text = comm::device_failure(error)) {
    return {static_cast<int>(ExitCode::kRankFailed), *text};
  }
  return {static_cast<int>(ExitCode::kInternal), internal_error_text(error)};
}

}  // namespace automodel::recipes
