#include "kernels/layers/dropout.h"

#include <memory>

#include "kernels/differentiation.h"
#include "support/allocation_counter.h"

namespace automodel::kernels {
namespace {

using Spans = std::vector<DropoutSpan>;
using Path = at::Tensor (*)(const at::Tensor&, const DropoutMask&, const Spans&);

const DropoutMask kMask{0.3, tensor::RandomKey(5, "site")};

Operation drops(Path path, const Spans& spans) {
  return [=](const Tensors& in) { return Tensors{path(in[0], kMask, spans)}; };
}

TEST(Dropout, MatchesThePlainPathWhereverTheMaskBegins) {
  for (const uint64_t first : {0, 1, 6, 1 << 20}) {
    for (const int64_t rows : {1, 3, 700}) {
      SCOPED_TRACE(testing::Message() << rows << " rows from " << first);
      const Spans spans = {{first, rows * 50}};
      const Tensors in = {Numbers(3).normal({rows, 50})};
      expect_fused_as_close(drops(dropout, spans), drops(dropout_reference, spans), in);
      expect_same_on_two_threads(drops(dropout, spans), in);
    }
  }
}

/// Numbers of 2^32 blocks and more, and ends of spans inside one.
TEST(Dropout, MatchesThePlainPathOfSeveralSpans) {
  const Spans spans = {{(uint64_t{1} << 34) - 33, 70}, {2, 1}, {1001, 29}};
  const Tensors in = {Numbers(4).normal({4, 25})};
  expect_fused_as_close(drops(dropout, spans), drops(dropout_reference, spans), in);
}

TEST(Dropout, KeepsWhatTheStreamSaysAndScalesIt) {
  const at::Tensor x = at::ones({1000});
  const at::Tensor out = dropout(x, kMask, {{7, 1000}});
  for (int64_t i = 0; i < 1000; ++i) {
    const bool is_kept = tensor::random_uniform(kMask.key, 7 + static_cast<uint64_t>(i)) >= 0.3f;
    ASSERT_EQ(out[i].item<float>(), is_kept ? static_cast<float>(1 / 0.7) : 0.0f) << i;
  }
}

TEST(Dropout, OfEverythingIsZero) {
  for (const Path path : {dropout, dropout_reference}) {
    const DropoutMask all{1.0, kMask.key};
    EXPECT_TRUE(at::equal(path(at::ones({1000}), all, {{0, 1000}}), at::zeros({1000})));
  }
}

TEST(Dropout, KeepsNothingForBackward) {
  const at::Tensor x = at::ones({64, 1024}).requires_grad_();
  const auto counter = std::make_shared<test::AllocationCounter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  const at::Tensor out = dropout(x, kMask, {{0, x.numel()}});
  EXPECT_EQ(counter->live(), x.numel() * 4);
}

TEST(Dropout, LetsNanAndInfThrough) {
  const Spans spans = {{0, 4000}};
  at::Tensor x = Numbers(5).normal({4000});
  x[17] = std::numeric_limits<float>::quiet_NaN();
  x[900] = std::numeric_limits<float>::infinity();
  expect_nothing_hidden(drops(dropout, spans), drops(dropout_reference, spans), {x});
}

TEST(Dropout, SpansThatGoOnBecomeOne) {
  Spans spans;
  add_span(spans, {4, 6});
  add_span(spans, {10, 5});
  add_span(spans, {16, 1});
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].numel, 11);
  EXPECT_EQ(spans[1].first, 16u);
}

}  // namespace
}  // namespace automodel::kernels
