#include "serve/site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "report/run_folder.h"
#include "serve/run_metrics.h"
#include "support/errors.h"

namespace automodel::serve {
namespace {

using test::step_line;
using test::TemporaryDirectory;
using test::write_run;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kToken = "correct-horse-battery";

std::string field(const Response& response, const std::string& name) {
  for (const auto& [key, value] : response.fields) {
    if (key == name) return value;
  }
  return "";
}

/// Files are looked at with every request.
class SiteTest : public testing::Test {
 protected:
  std::string add(const std::string& name, const std::string& events = "") {
    return write_run(root_, {.name = name,
                             .training = step_line(0, "7.5") + step_line(1, "6.25"),
                             .events = events,
                             .description = "{\"max_steps\": 4}"});
  }
  Response ask(const std::string& path, const SiteOptions& options = {}, Request request = {}) {
    if (site_ == nullptr) {
      index_ = std::make_unique<RunIndex>(root_.path(),
                                          IndexOptions{.least_seconds = 0, .most_share = 1e9});
      site_ = std::make_unique<Site>(*index_, options);
    }
    if (request.method.empty()) request.method = "GET";
    if (request.host.empty()) request.host = "localhost:8265";
    request.path = path;
    return site_->answer(request);
  }

  static Request with_runs(std::vector<std::string> runs) {
    Request request;
    request.runs = std::move(runs);
    return request;
  }

  TemporaryDirectory root_;
  std::unique_ptr<RunIndex> index_;
  std::unique_ptr<Site> site_;
};

TEST_F(SiteTest, RunsAreListedAndShown) {
  add("sweep/a b");
  add("done", "{\"event\": \"end\", \"timestamp\": \"2026-08-01T00:00:00.000Z\"}\n");
  const Response list = ask("/");
  EXPECT_EQ(list.status, 200);
  EXPECT_THAT(*list.body, HasSubstr("<a href=\"runs/sweep/a%20b\">sweep/a b</a>"));
  EXPECT_THAT(*list.body, HasSubstr("<li>2 runs</li><li>1 running</li><li>1 finished</li>"));
  EXPECT_THAT(*list.body, HasSubstr(">2 of 4<"));
  EXPECT_THAT(*list.body, HasSubstr(">6.25<"));
  EXPECT_LT(list.body->find("sweep/a b"), list.body->find(">done<"));  // those that run come first
  const Response run = ask("/runs/sweep/a b");
  EXPECT_EQ(run.status, 200);
  EXPECT_THAT(*run.body, HasSubstr("<h1>sweep/a b</h1>"));
  EXPECT_THAT(*run.body, HasSubstr("<nav><a href=\"../../\">All runs</a></nav>"));
  EXPECT_THAT(*run.body, HasSubstr("loss against step: sweep/a b from 7.5 to 6.25"));
  EXPECT_THAT(*run.body, HasSubstr("http-equiv=\"refresh\""));
  EXPECT_THAT(*ask("/runs/done").body, Not(HasSubstr("http-equiv=\"refresh\"")));
}

TEST_F(SiteTest, NamesAndTextsAreShownAndNotRun) {
  const std::string name = "<script>alert(1)<\"'";
  add(name, "{\"event\": \"failure\", \"text\": \"<img src=x onerror=y>\"}\n");
  const std::string list = *ask("/").body;
  EXPECT_THAT(list, HasSubstr("&lt;script&gt;alert(1)&lt;"));
  EXPECT_THAT(list, HasSubstr("&lt;img src=x"));
  for (const std::string& page : {list, *ask(cat("/runs/", name)).body}) {
    EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
    EXPECT_THAT(page, Not(HasSubstr("<img")));
  }
}

TEST_F(SiteTest, AnswersMayRunNothingButTheirOwnScript) {
  add("a");
  for (const char* path :
       {"/", "/runs/a", "/compare", "/metrics", "/api/runs", "/health", "/none"}) {
    const Response answer = ask(path);
    EXPECT_THAT(
        field(answer, "Content-Security-Policy"),
        testing::MatchesRegex("default-src 'none'; style-src 'sha256-[^ ]+' 'sha256-[^ ]+'; "
                              "script-src 'sha256-[^ ]+'; connect-src 'self'; base-uri "
                              "'none'; form-action 'self'; frame-ancestors 'none'"));
    EXPECT_EQ(field(answer, "X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(field(answer, "Referrer-Policy"), "no-referrer");
    EXPECT_THAT(*answer.body, Not(HasSubstr("style=")));  // the policy would drop it
  }
}

TEST_F(SiteTest, APathIsLookedUpAndNeverOpened) {
  const TemporaryDirectory outside;
  write_run(outside, {.name = "run", .training = step_line(0, "1")});
  std::filesystem::create_directory_symlink(outside.file("run"), root_.file("linked"));
  add("a");
  for (const std::string& path :
       {std::string("/runs/../a"), cat("/runs/", outside.file("run")), std::string("/runs/a/"),
        std::string("/runs/linked"), std::string("/runs/./a"), std::string("/runs/a/run.json"),
        std::string("//runs/a"), std::string("/../../etc/passwd"), std::string("/runs/"),
        std::string("/runs/a\0b", 9), std::string("")}) {
    EXPECT_EQ(ask(path).status, 404) << path;
  }
  EXPECT_EQ(ask("/runs/a").status, 200);
}

TEST_F(SiteTest, OnlyGetAndHeadAreAnswered) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get", ""}) {
    Request request;
    request.method = method;
    if (*method == '\0') continue;
    const Response answer = ask("/", {}, request);
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(field(answer, "Allow"), "GET, HEAD");
  }
}

TEST_F(SiteTest, OnLoopbackAnotherHostIsRefused) {
  Request request;
  request.host = "evil.example:8265";
  for (const char* path : {"/", "/metrics", "/health"}) {
    EXPECT_EQ(ask(path, {}, request).status, 403);
  }
  site_ = nullptr;
  EXPECT_EQ(ask("/", {.is_on_loopback = false, .token = kToken}, request).status, 401);
}

TEST_F(SiteTest, ATokenIsDemandedEverywhereButForHealth) {
  add("a");
  const SiteOptions options{.is_on_loopback = false, .token = kToken};
  for (const char* path : {"/", "/runs/a", "/compare", "/metrics", "/api/runs", "/none"}) {
    EXPECT_EQ(ask(path, options).status, 401) << path;
    for (const char* wrong :
         {"correct-horse-batterx", "correct-horse", "correct-horse-battery-", "x"}) {
      Request request;
      request.token = wrong;
      EXPECT_EQ(ask(path, options, request).status, 401);
      request = {};
      const std::string bearer = cat("Bearer ", wrong);
      request.authorization = bearer;
      EXPECT_EQ(ask(path, options, request).status, 401);
      request = {};
      request.cookie = wrong;
      EXPECT_EQ(ask(path, options, request).status, 401);
    }
  }
  EXPECT_EQ(ask("/health", options).status, 200);
  Request request;
  const std::string bearer = cat("Bearer ", kToken);
  request.authorization = bearer;
  EXPECT_EQ(ask("/", options, request).status, 200);
  EXPECT_EQ(ask("/metrics", options, request).status, 200);
  request = {};
  request.token = kToken;
  EXPECT_EQ(ask("/api/runs", options, request).status, 200);
  request = {};
  request.cookie = kToken;  // the cookie is another secret
  EXPECT_EQ(ask("/", options, request).status, 401);
}

TEST_F(SiteTest, APageTakesTheTokenOutOfItsAddress) {
  add("x/a b");
  const SiteOptions options{.is_on_loopback = false, .token = kToken};
  Request request;
  request.token = kToken;
  const Response moved = ask("/runs/x/a b", options, request);
  EXPECT_EQ(moved.status, 303);
  EXPECT_EQ(field(moved, "Location"), "./a%20b");
  EXPECT_EQ(field(ask("/", options, request), "Location"), "./");
  const std::string cookie = field(moved, "Set-Cookie");
  EXPECT_THAT(cookie,
              testing::MatchesRegex("automodel_serve=[0-9a-f]+; Path=/; HttpOnly; SameSite=Lax"));
  EXPECT_THAT(cookie, Not(HasSubstr(kToken)));
  request = {};
  const std::string value = cookie.substr(16, 64);
  request.cookie = value;
  EXPECT_EQ(ask("/runs/x/a b", options, request).status, 200);
}

TEST_F(SiteTest, RunsAreShownBesideEachOther) {
  const std::string folder = add("x/a b");
  add("b", "{\"event\": \"end\"}\n");
  add("c");
  const Response both = ask("/compare", {}, with_runs({"x/a b", "b", "x/a b"}));
  EXPECT_EQ(both.status, 200);
  EXPECT_THAT(*both.body, HasSubstr("<h1>x/a b, b</h1>"));
  EXPECT_THAT(*both.body, HasSubstr("loss against step: x/a b from 7.5 to 6.25, b from"));
  EXPECT_THAT(*both.body, HasSubstr("<nav><a href=\"./\">All runs</a></nav>"));
  EXPECT_THAT(*both.body, HasSubstr("http-equiv=\"refresh\""));  // one of them goes on
  Request again = with_runs({"x/a b", "b"});
  const std::string tag = field(both, "ETag");
  again.if_none_match = tag;
  EXPECT_EQ(ask("/compare", {}, again).status, 304);
  std::ofstream(path_join(folder, "training.jsonl"), std::ios::app) << step_line(2, "5.5");
  EXPECT_THAT(*ask("/compare", {}, again).body, HasSubstr("x/a b from 7.5 to 5.5, b from"));
  EXPECT_EQ(ask("/runs/b").status, 200);  // the same runs on a page of their own
  // A run alone is shown from both places, whose ways to the list differ.
  EXPECT_THAT(*ask("/compare", {}, with_runs({"x/a b"})).body, HasSubstr("<a href=\"./\">All"));
  EXPECT_THAT(*ask("/runs/x/a b").body, HasSubstr("<a href=\"../../\">All runs</a>"));
}

TEST_F(SiteTest, OnlyRunsOfTheListAreShownBesideEachOther) {
  const TemporaryDirectory outside;
  const std::string elsewhere = write_run(outside, {.training = step_line(0, "1")});
  add("a");
  for (const std::vector<std::string>& runs : {std::vector<std::string>{"a", "none"},
                                               {elsewhere},
                                               {"../a"},
                                               {"a/"},
                                               {"a", ""},
                                               {"a", std::string("a\0b", 3)}}) {
    EXPECT_EQ(ask("/compare", {}, with_runs(runs)).status, 404);
  }
  const Response none = ask("/compare");
  EXPECT_EQ(none.status, 400);
  EXPECT_EQ(*none.body,
            "this page shows from one to 8 runs beside each other, found 0; choose them at /\n");
  std::vector<std::string> many;
  for (int i = 0; i < 9; ++i) many.push_back(cat("r", i));
  for (const std::string& run : many) add(run);
  EXPECT_EQ(ask("/compare", {}, with_runs(many)).status, 400);
  many.pop_back();
  EXPECT_EQ(ask("/compare", {}, with_runs(many)).status, 200);
}

TEST_F(SiteTest, RunsThatWereAskedForStayWhenTheTokenLeavesTheAddress) {
  add("x/a b");
  add("c&d");
  Request request = with_runs({"x/a b", "c&d"});
  request.token = kToken;
  const Response moved = ask("/compare", {.is_on_loopback = false, .token = kToken}, request);
  EXPECT_EQ(field(moved, "Location"), "./compare?run=x/a%20b&run=c%26d");
}

TEST_F(SiteTest, TheListLetsRunsBeChosen) {
  add("x/a \"b");
  write_run(root_, {.name = "\xFF", .training = step_line(0, "4")});
  const std::string list = *ask("/").body;
  EXPECT_THAT(list, HasSubstr("<form action=\"compare\" method=\"get\">"));
  EXPECT_THAT(list, HasSubstr("<input type=\"checkbox\" name=\"run\" value=\"x/a &quot;b\" "
                              "aria-label=\"compare x/a &quot;b\">"));
  // What a form cannot send cannot be chosen.
  EXPECT_THAT(list, HasSubstr("<td class=\"choice\"></td><th scope=\"row\"><a href=\"runs/%ff\">"));
}

TEST_F(SiteTest, TheListTellsTheTimeLeftAndTheLatestAlert) {
  write_run(root_, {.name = "a",
                    .training = step_line(0, "2", "2026-08-01T00:00:00.000Z") +
                                step_line(1, "2", "2026-08-01T00:00:30.000Z"),
                    .events = "{\"event\": \"advice\", \"step\": 1, \"kind\": \"spike\", \"text\": "
                              "\"a <spike>\"}\n",
                    .description = "{\"format\": 2, \"version\": \"9.0\", \"max_steps\": 12}"});
  const std::string list = *ask("/").body;
  EXPECT_THAT(list, HasSubstr("<span class=\"what\">about 5 min left</span>"));
  EXPECT_THAT(list, HasSubstr("! advice: step 1, kind spike, a &lt;spike&gt;</span>"));
  EXPECT_THAT(list, HasSubstr("! written by automodel 9.0, a newer format: read as far as it is "
                              "known</span>"));
  const auto run = nlohmann::json::parse(*ask("/api/runs").body)["runs"][0];
  EXPECT_EQ(run["seconds_left"], 300);
  EXPECT_EQ(run["alert"]["event"], "advice");
  EXPECT_TRUE(run["mfu"].is_null());
}

TEST_F(SiteTest, APageThatHasNotChangedIsNotSentAgain) {
  const std::string folder = add("a");
  const Response first = ask("/runs/a");
  const std::string tag = field(first, "ETag");
  Request request;
  request.if_none_match = tag;
  const Response same = ask("/runs/a", {}, request);
  EXPECT_EQ(same.status, 304);
  EXPECT_EQ(*same.body, "");
  EXPECT_EQ(ask("/runs/a").body, first.body);  // not drawn again
  std::ofstream(path_join(folder, "training.jsonl"), std::ios::app)
      << step_line(2, "5.5").substr(0, 30);
  EXPECT_EQ(*ask("/runs/a").body, *first.body);  // half a line
  std::ofstream(path_join(folder, "training.jsonl"), std::ios::app)
      << step_line(2, "5.5").substr(30);
  const Response next = ask("/runs/a", {}, request);
  EXPECT_EQ(next.status, 200);
  EXPECT_THAT(*next.body, HasSubstr("from 7.5 to 5.5"));
}

TEST_F(SiteTest, RunsComeAndGo) {
  EXPECT_THAT(*ask("/").body, HasSubstr("No run yet"));
  add("a");
  EXPECT_EQ(ask("/runs/a").status, 200);
  remove_tree(root_.file("a"));
  EXPECT_EQ(ask("/runs/a").status, 404);
  EXPECT_THAT(*ask("/").body, HasSubstr("No run yet"));
}

TEST_F(SiteTest, ManyMayAskAtOnce) {
  for (int i = 0; i < 3; ++i) add(cat("r", i));
  ask("/");
  std::atomic<int> num_shown{0};
  const auto beside = [](int first, int second) {
    return with_runs({cat("r", first % 3), cat("r", second % 3)});
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        for (int k = 0; k < 6; ++k) {
          num_shown += ask(cat("/runs/r", (i + k) % 3)).status == 200 ? 1 : 0;
          num_shown += ask("/metrics").status == 200 ? 1 : 0;
          // In both orders: none waits for another that waits for it.
          num_shown += ask("/compare", {}, beside(i, i + k)).status == 200 ? 1 : 0;
        }
      });
    }
    for (int64_t step = 2; step < 20; ++step) {
      std::ofstream(root_.file("r0/training.jsonl"), std::ios::app) << step_line(step, "1");
    }
  }
  EXPECT_EQ(num_shown, 8 * 18);
}

TEST_F(SiteTest, FewRunsStayOpen) {
  for (int i = 0; i < 20; ++i) add(cat("r", i));
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(ask(cat("/runs/r", i)).status, 200);
      const Request request =
          with_runs({cat("r", i), cat("r", (i + 7) % 20), cat("r", (i + 3) % 20)});
      EXPECT_EQ(ask("/compare", {}, request).status, 200);
    }
  }
}

TEST_F(SiteTest, MetricsAreWhatPrometheusReads) {
  add("a\"\\b", "{\"event\": \"end\"}\n");
  const Response answer = ask("/metrics");
  EXPECT_EQ(field(answer, "Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  const std::string& text = *answer.body;
  EXPECT_THAT(text,
              testing::StartsWith("# HELP trainer_step Last step, counted from 0.\n# TYPE "
                                  "trainer_step gauge\ntrainer_step{run=\"a\\\"\\\\b\"} 1\n"));
  for (const char* line :
       {"trainer_max_steps{run=\"a\\\"\\\\b\"} 4\n", "trainer_loss{run=\"a\\\"\\\\b\"} 6.25\n",
        "trainer_grad_norm{run=\"a\\\"\\\\b\"} 1.5\n",
        "trainer_learning_rate{run=\"a\\\"\\\\b\"} 0.001\n",
        "trainer_throughput_tokens_per_sec{run=\"a\\\"\\\\b\"} 5000.5\n",
        "trainer_peak_memory_gib{run=\"a\\\"\\\\b\"} 0.25\n",
        "trainer_last_step_timestamp_seconds{run=\"a\\\"\\\\b\"} 1785542400\n",
        "trainer_run_status{run=\"a\\\"\\\\b\",status=\"finished\"} 1\n",
        "trainer_run_status{run=\"a\\\"\\\\b\",status=\"running\"} 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(SiteTest, TheUtilizationIsAMetricWhereItIsRecorded) {
  write_run(root_, {.name = "a", .training = "{\"step\": 0, \"loss\": 1, \"mfu\": 31.5}\n"});
  add("b");
  const std::string text = *ask("/metrics").body;
  EXPECT_THAT(text, HasSubstr("trainer_mfu_percent{run=\"a\"} 31.5\n"));
  EXPECT_THAT(text, Not(HasSubstr("trainer_mfu_percent{run=\"b\"}")));
}

TEST_F(SiteTest, NoTwoRunsShareALabel) {
  const std::string root_name = file_name(root_.path());
  write_run(root_, {.name = ".", .training = step_line(0, "1")});
  write_run(root_, {.name = root_name, .training = step_line(0, "2")});
  write_run(root_, {.name = "\xFE", .training = step_line(0, "3")});
  write_run(root_, {.name = "\xFF", .training = step_line(0, "4")});
  const std::string text = *ask("/metrics").body;
  for (const std::string& label :
       {cat(".\"} 1"), cat(root_name, "\"} 2"), cat("./%fe\"} 3"), cat("./%ff\"} 4")}) {
    EXPECT_THAT(text, HasSubstr(cat("trainer_loss{run=\"", label, "\n")));
  }
}

TEST_F(SiteTest, ANormThatIsNotFiniteIsASampleToo) {
  const std::string broken =
      replace_all(step_line(1, "NaN"), "\"grad_norm\": 1.5", "\"grad_norm\": NaN");
  write_run(root_, {.name = "broken", .training = broken});
  write_run(root_, {.name = "none",
                    .training = replace_all(step_line(1, "2"), "\"grad_norm\": 1.5, ", "")});
  const std::string text = *ask("/metrics").body;
  EXPECT_THAT(text, HasSubstr("trainer_loss{run=\"broken\"} Nan\n"));
  EXPECT_THAT(text, HasSubstr("trainer_grad_norm{run=\"broken\"} Nan\n"));
  EXPECT_THAT(text, HasSubstr("trainer_loss{run=\"none\"} 2\n"));
  EXPECT_THAT(text, Not(HasSubstr("trainer_grad_norm{run=\"none\"}")));
}

TEST_F(SiteTest, TheListIsJsonToo) {
  add("a \xFF");
  write_run(root_, {.name = "b", .training = step_line(0, "NaN")});
  const auto all = nlohmann::json::parse(*ask("/api/runs").body);
  EXPECT_EQ(all["is_complete"], true);
  std::map<std::string, nlohmann::json> runs;
  for (const auto& run : all["runs"]) runs[run["path"]] = run;
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs["runs/a%20%ff"]["name"], "a \xEF\xBF\xBD");
  EXPECT_EQ(runs["runs/a%20%ff"]["loss"], 6.25);
  EXPECT_EQ(runs["runs/a%20%ff"]["max_steps"], 4);
  EXPECT_TRUE(runs["runs/b"]["loss"].is_null());
  EXPECT_EQ(runs["runs/b"]["status"], "running");
}

TEST_F(SiteTest, AFolderThatIsNoneIsAnError) {
  const auto error = [](const std::string& folder) {
    return test::error_of<UserError>([&] { RunIndex(folder, {}); });
  };
  EXPECT_EQ(error(root_.file("none")), cat("no such folder: ", root_.file("none")));
  const std::string file = root_.write("file", "x");
  EXPECT_EQ(error(file), cat(file, " is not a folder"));
}

}  // namespace
}  // namespace automodel::serve
