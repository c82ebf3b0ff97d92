#include "hub/hub_api.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace automodel::hub {

namespace {

std::string api_url(const Repository& repository, const Settings& settings) {
  const char* kind = repository.kind == RepositoryKind::kModel ? "models/" : "datasets/";
  return cat(settings.endpoint, "/api/", kind, http::escape_path(repository.id));
}

/// A revision in a URL is one component: refs/pr/1 is refs%2Fpr%2F1.
std::string escape_component(std::string_view text) {
  return replace_all(http::escape_path(text), "/", "%2F");
}

std::string page_url(const Repository& repository, const Settings& settings) {
  const char* kind = repository.kind == RepositoryKind::kModel ? "/" : "/datasets/";
  return cat(settings.endpoint, kind, repository.id);
}

std::string problem_of(const http::HttpAnswer& answer) {
  if (!answer.problem.empty()) return answer.problem;
  if (answer.head.status == 429) return "too many requests (429)";
  return cat("HTTP status ", answer.head.status);
}

Json ask(http::HttpClient& client, const std::string& url, const Repository& repository,
         const Settings& settings, Reporter& reporter, http::HttpHead& head) {
  Attempts attempts(client, settings, reporter,
                    cat("asking ", settings.endpoint, " for ", describe(repository)));
  while (true) {
    const http::HttpAnswer answer = client.get(url);
    head = answer.head;
    if (answer.problem.empty() && answer.head.status == 200) {
      try {
        return Json::parse(answer.body, url);
      } catch (const InputError& error) {
        throw HubError(HubFailure::kBroken,
                       cat(error.what(), "; is HF_ENDPOINT (", settings.endpoint, ") a hub?"));
      }
    }
    if (answer.problem.empty() && !is_passing(answer.head.status)) {
      throw refused(answer.head, repository, describe(repository), settings);
    }
    attempts.fail(answer);
  }
}

/// The URL of `<URL>; rel="next"`, "" when there is none.
std::string next_page(const std::string& link) {
  for (const std::string& part : split(link, ',')) {
    const size_t begin = part.find('<');
    const size_t end = part.find('>');
    if (begin == std::string::npos || end == std::string::npos || end < begin) continue;
    if (part.find("rel=\"next\"", end) == std::string::npos) continue;
    return part.substr(begin + 1, end - begin - 1);
  }
  return "";
}

}  // namespace

HubError refused(const http::HttpHead& head, const Repository& repository, const std::string& what,
                 const Settings& settings) {
  const std::string code = head.kept_field("x-error-code");
  const std::string said = head.kept_field("x-error-message");
  const std::string quoted = said.empty() ? "" : cat(" (it says: ", said, ")");
  const bool has_token = !settings.token.empty();
  const std::string page = page_url(repository, settings);
  if (code == "GatedRepo") {
    return {HubFailure::kDenied,
            cat(what, " is gated: ask for access at ", page,
                has_token ? ", with the account of the token" : ", and set HF_TOKEN", quoted)};
  }
  if (code == "RevisionNotFound") {
    return {HubFailure::kAbsent, cat(describe(repository), ": there is no branch, tag or commit '",
                                     repository.revision, "'; ", page, "/tree/main has the list")};
  }
  if (code == "EntryNotFound") {
    return {HubFailure::kAbsent, cat(what, " is not there", quoted)};
  }
  if (head.status == 401 || head.status == 403) {
    const char* advice =
        has_token ? "the token may not read it: check its name, and HF_TOKEN"
                  : "check its name; a private or gated one needs HF_TOKEN, or `hf auth login`";
    return {HubFailure::kDenied, cat(settings.endpoint, " does not give ", what, " (", head.status,
                                     "): ", advice, quoted)};
  }
  if (head.status == 404) {
    return {HubFailure::kAbsent,
            cat(settings.endpoint, " has no ", what, ": check its name", quoted)};
  }
  return {HubFailure::kBroken,
          cat(settings.endpoint, " answers ", head.status, " for ", what, quoted)};
}

bool is_passing(int status) {
  return status == 408 || status == 429 || status >= 500;
}

void Attempts::fail(const http::HttpAnswer& answer) {
  ++num_failed_;
  const HubError cancelled(HubFailure::kUnreachable, cat(what_, ": another download has failed"));
  if (!client_.wait(0)) throw cancelled;
  const std::string problem = problem_of(answer);
  if (answer.is_final || num_failed_ >= settings_.num_attempts) {
    const std::string times = num_failed_ == 1 ? "" : cat(" (", num_failed_, " attempts)");
    throw HubError(HubFailure::kUnreachable, cat(what_, ": ", problem, times));
  }
  double seconds = std::min(settings_.backoff_seconds * std::pow(2.0, num_failed_ - 1), 30.0);
  const auto asked = parse_double(answer.head.field("retry-after"));
  if (asked && *asked >= 0) {
    if (*asked > settings_.longest_wait_seconds) {
      throw HubError(HubFailure::kUnreachable,
                     cat(what_, ": ", problem, ": the server asks to wait ",
                         format_duration(*asked), "; start again then"));
    }
    seconds = *asked;
  }
  reporter_.warning(cat(what_, ": ", problem, "; trying again in ", format_duration(seconds)));
  if (!client_.wait(seconds)) throw cancelled;
}

std::string ask_commit(http::HttpClient& client, const Repository& repository,
                       const Settings& settings, Reporter& reporter) {
  const std::string url =
      cat(api_url(repository, settings), "/revision/", escape_component(repository.revision));
  http::HttpHead head;
  const Json answer = ask(client, url, repository, settings, reporter, head);
  const Json* commit = answer.find("sha");
  if (commit == nullptr || !commit->is_string() || !is_commit(commit->as_string())) {
    throw HubError(HubFailure::kBroken, cat(url, ": the answer names no commit; is HF_ENDPOINT (",
                                            settings.endpoint, ") a hub?"));
  }
  return commit->as_string();
}

std::vector<HubFile> ask_listing(http::HttpClient& client, const Repository& repository,
                                 const std::string& commit, const Settings& settings,
                                 Reporter& reporter) {
  std::vector<HubFile> files;
  std::string url =
      cat(api_url(repository, settings), "/tree/", commit, "?recursive=true&expand=false");
  constexpr int kMostPages = 10000;
  for (int page = 0; !url.empty(); ++page) {
    if (page == kMostPages)
      throw HubError(HubFailure::kBroken, cat(url, ": the listing has no end"));
    http::HttpHead head;
    const Json answer = ask(client, url, repository, settings, reporter, head);
    try {
      for (HubFile& file : read_tree_answer(answer, url)) files.push_back(std::move(file));
    } catch (const InputError& error) {
      throw HubError(HubFailure::kBroken,
                     cat(error.what(), "; is HF_ENDPOINT (", settings.endpoint, ") a hub?"));
    }
    const std::string asked = std::exchange(url, next_page(head.field("link")));
    // A mirror passes on the hub's own address; the next page is asked where this one was.
    if (const size_t path = url.find("/api/"); path != std::string::npos) {
      url = settings.endpoint + url.substr(path);
    } else if (!url.empty()) {
      throw HubError(HubFailure::kBroken, cat("the listing of ", describe(repository),
                                              " goes on at no address of a hub: ", url));
    }
    if (url == asked) {
      throw HubError(HubFailure::kBroken, cat(url, ": the listing goes on at its own address"));
    }
  }
  return files;
}

std::string file_url(const Repository& repository, const std::string& commit,
                     const std::string& path, const Settings& settings) {
  return cat(page_url(repository, settings), "/resolve/", commit, "/", http::escape_path(path));
}

}  // namespace automodel::hub
