#include "core/html_text.h"

#include <gtest/gtest.h>

namespace automodel {
namespace {

TEST(HtmlTest, TextsAreEscapedAndBadBytesReplaced) {
  EXPECT_EQ(html_text("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(html_text("\xC3\xA4 \xFF \x01"), "\xC3\xA4 \xEF\xBF\xBD \xEF\xBF\xBD");
}

}  // namespace
}  // namespace automodel
