#include "kernels/layers/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/base/fused.h"
#include "kernels/device/device_kernels.h"

namespace automodel::kernels {

cpu::DropoutStream DropoutMask::stream() const {
  // A number of the stream is a multiple of 2^-24, compared with p in float32.
  const double least = std::ceil(static_cast<double>(static_cast<float>(p)) * 0x1p24);
  return {key.seed, key.stream, static_cast<uint32_t>(least), static_cast<float>(scale())};
}

at::Tensor DropoutMask::kept(uint64_t first, int64_t numel) const {
  return tensor::dropout_kept(key, first, numel, p);
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kPieceNumbers = 1 << 14;

/// A mask and which elements of it a tensor holds.
struct PlacedMask : torch::CustomClassHolder {
  PlacedMask(const DropoutMask& mask, const std::vector<DropoutSpan>& all)
      : stream(mask.stream()), spans(all) {
    for (const DropoutSpan& span : spans) numel += span.numel;
  }

  struct Piece {
    int64_t offset;
    uint64_t first;
    int64_t numel;
  };

  /// The spans in pieces of at most `most` numbers.
  std::vector<Piece> pieces_of(int64_t most) const {
    std::vector<Piece> pieces;
    int64_t offset = 0;
    for (const DropoutSpan& span : spans) {
      for (int64_t done = 0; done < span.numel; done += most) {
        pieces.push_back({offset + done, span.first + static_cast<uint64_t>(done),
                          std::min(most, span.numel - done)});
      }
      offset += span.numel;
    }
    return pieces;
  }

  at::Tensor apply(const at::Tensor& x) const {
    const at::Tensor in = x.contiguous();
    AM_CHECK(in.numel() == numel, "spans of ", numel, " elements of ", in.numel());
    at::Tensor out = at::empty_like(in);
    const device::DeviceKernels* const kernels = device::kernels_for({in});
    AM_CHECK(kernels != nullptr || is_fusable({in}));
    by_storage(in, [&](auto storage) {
      using T = decltype(storage);
      if (kernels != nullptr) {
        for (const Piece& piece : pieces_of(numel)) {
          kernels->of<T>().drop(stream, {.first = piece.first, .width = piece.numel},
                                numbers_of<T>(in) + piece.offset,
                                numbers_of<T>(out) + piece.offset);
        }
        return;
      }
      const std::vector<Piece> pieces = pieces_of(kPieceNumbers);
      const auto num_pieces = static_cast<int64_t>(pieces.size());
      // Spans may be short: a thread takes about kPieceNumbers numbers at least.
      const int64_t at_least = std::max<int64_t>(1, kPieceNumbers * num_pieces / (numel + 1));
      at::parallel_for(0, num_pieces, at_least, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const Piece& piece = pieces[static_cast<size_t>(i)];
          cpu::loops().of<T>().drop(stream, piece.first, numbers_of<T>(in) + piece.offset,
                                    numbers_of<T>(out) + piece.offset, piece.numel);
        }
      });
    });
    return out;
  }

  cpu::DropoutStream stream;
  std::vector<DropoutSpan> spans;
  int64_t numel = 0;
};

struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const c10::intrusive_ptr<PlacedMask>& mask) {
    context->saved_data["mask"] = c10::IValue::make_capsule(mask);
    return mask->apply(x);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto mask =
        c10::static_intrusive_pointer_cast<PlacedMask>(context->saved_data["mask"].toCapsule());
    return {mask->apply(gradients[0]), at::Tensor()};
  }
};

}  // namespace

void add_span(std::vector<DropoutSpan>& spans, const DropoutSpan& span) {
  const bool goes_on = !spans.empty() &&
                       spans.back().first + static_cast<uint64_t>(spans.back().numel) == span.first;
  if (goes_on) {
    spans.back().numel += span.numel;
  } else {
    spans.push_back(span);
  }
}

at::Tensor dropout(const at::Tensor& x, const DropoutMask& mask,
                   const std::vector<DropoutSpan>& spans) {
  if (!is_fusable({x}) && device::kernels_for({x}) == nullptr) {
    return dropout_reference(x, mask, spans);
  }
  return Dropout::apply(x, c10::make_intrusive<PlacedMask>(mask, spans));
}

at::Tensor dropout_reference(const at::Tensor& x, const DropoutMask& mask,
                             const std::vector<DropoutSpan>& spans) {
  std::vector<at::Tensor> kept;
  for (const DropoutSpan& span : spans) kept.push_back(mask.kept(span.first, span.numel));
  const at::Tensor all = kept.size() == 1 ? kept[0] : at::cat(kept);
  return (x * all.view(x.sizes()).to(x.device())) * mask.scale();
}

}  // namespace automodel::kernels
