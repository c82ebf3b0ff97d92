#pragma once

#include <string>
#include <string_view>

namespace automodel::chat {

/// markupsafe's escape: & < > ' and " as entities.
std::string escaped_html(std::string_view text);
/// jinja2's url_quote; `for_query` quotes "/" too and writes spaces as "+".
std::string quoted_url(std::string_view text, bool for_query);

}  // namespace automodel::chat
