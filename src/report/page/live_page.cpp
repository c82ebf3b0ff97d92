#include "report/page/live_page.h"

#include <algorithm>

#include "core/html_text.h"
#include "core/text.h"
#include "report/facts/html.h"

namespace automodel::report {

const char* const kLiveScript = R"js(
(() => {
  const note = document.getElementById("live"), wait = 1000 * document.body.dataset.seconds;
  let seen = null, last = new Date();
  const show = page => {
    const open = [...document.querySelectorAll("details")].map(it => it.open);
    const chosen = new Set([...document.querySelectorAll("main input:checked")].map(it => it.value));
    const focused = document.activeElement?.value;
    document.querySelector("main").replaceWith(document.adoptNode(page.querySelector("main")));
    document.querySelectorAll("details").forEach((it, i) => { it.open = open[i]; });
    document.querySelectorAll("main input").forEach(it => {
      it.checked = chosen.has(it.value);
      if (it.value === focused) it.focus({preventScroll: true});
    });
    document.title = page.title;
  };
  const look = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(location.pathname + location.search, {cache: "no-cache"});
        if (!answer.ok) throw new Error(answer.status);
        const tag = answer.headers.get("ETag"), text = await answer.text();
        if (tag !== seen) show(new DOMParser().parseFromString(text, "text/html"));
        [seen, last] = [tag, new Date()];
        note.textContent = "";
      } catch {
        note.textContent = "No answer from the server; this is how it was at " + last.toLocaleTimeString() + ".";
      }
    }
    setTimeout(look, wait);
  };
  setTimeout(look, wait);
})();
)js";

std::string live_head(const LivePage& live) {
  if (live.has_end) return "";
  constexpr double kLeastSeconds = 30;  // a page that is loaded anew forgets its switches
  return cat("<noscript><meta http-equiv=\"refresh\" content=\"",
             format_fixed(std::max(live.seconds, kLeastSeconds), 0), "\"></noscript>");
}

std::string live_top(const LivePage& live) {
  const std::string way =
      live.home.empty() ? ""
                        : cat("<nav><a href=\"", html_text(live.home), "\">All runs</a></nav>\n");
  return cat("<body data-seconds=\"", format_fixed(live.seconds, 3), "\">\n", way,
             "<p id=\"live\" class=\"failure\" role=\"status\"></p>\n");
}

std::string live_end() {
  return cat("<script>", kLiveScript, "</script>");
}

}  // namespace automodel::report
