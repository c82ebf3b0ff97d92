#pragma once

#include <string>
#include <string_view>

namespace automodel {

/// A text as it shows in HTML, in an element or in an attribute's quotes: markup is escaped, and
/// what is no UTF-8 or a control character becomes U+FFFD.
std::string html_text(std::string_view text);

}  // namespace automodel
