#include "hub/hub.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <thread>

#include "core/clock.h"
#include "support/errors.h"
#include "support/hub_server.h"
#include "support/temporary_directory.h"

namespace automodel::hub {
namespace {

using test::error_of;
using test::HubFault;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr const char* kModel = "models/org/name";
const Repository kRepository{RepositoryKind::kModel, "org/name", "main"};

/// Bytes of which no piece is like another.
std::string bytes_of(size_t size) {
  std::string bytes(size, '\0');
  uint64_t state = 88172645463325252U;
  for (size_t i = 0; i + 8 <= size; i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + i, &state, 8);
  }
  return bytes;
}

class HubTest : public testing::Test {
 protected:
  HubTest() {
    settings_.endpoint = server_.endpoint();
    settings_.cache = cache_.file("hub");
    settings_.backoff_seconds = 0.001;
    server_.add(kModel, "config.json", "{\"model_type\": \"llama\"}");
    server_.add(kModel, "sub/vocab.json", "{}");
    server_.add(kModel, "model.safetensors", weights_, true);
  }

  Hub hub() { return Hub(settings_, warnings_, &bytes_); }
  /// Fetches files with a hub of its own.
  Snapshot fetch(const std::vector<std::string>& paths) {
    Hub one = hub();
    const Snapshot snapshot = one.open(kRepository);
    one.fetch(kRepository, snapshot, paths);
    return snapshot;
  }
  std::string fetched(const std::string& path) {
    return read_file(path_join(fetch({path}).folder, path));
  }
  std::string blob(const std::string& etag) const {
    return cache_.file("hub/models--org--name/blobs/" + etag);
  }
  std::string weights_etag() { return hub().open(kRepository).files[1].etag(); }

  test::HubServer server_;
  test::TemporaryDirectory cache_;
  test::Warnings warnings_;
  ByteCounter bytes_{0};
  Settings settings_;
  std::string weights_ = bytes_of(3 << 20);
};

TEST_F(HubTest, FilesAreKeptInTheLayoutOfPythonsCache) {
  const Snapshot snapshot = fetch({"config.json", "sub/vocab.json", "model.safetensors"});
  const std::string folder = cache_.file("hub/models--org--name");
  EXPECT_EQ(snapshot.folder, folder + "/snapshots/" + server_.commit(kModel));
  EXPECT_EQ(read_file(folder + "/refs/main"), server_.commit(kModel));
  EXPECT_EQ(read_file(snapshot.folder + "/config.json"), "{\"model_type\": \"llama\"}");
  EXPECT_EQ(read_file(snapshot.folder + "/model.safetensors"), weights_);
  char target[256] = {};
  ASSERT_GT(::readlink((snapshot.folder + "/sub/vocab.json").c_str(), target, sizeof(target)), 0);
  // git hash-object of "{}"
  EXPECT_STREQ(target, "../../../blobs/9e26dfeeb6e641a33dae4961196235bdb965b21b");
  EXPECT_THAT(list_directory(cache_.file("hub/models--org--name/blobs")), testing::SizeIs(3));
  EXPECT_TRUE(path_exists(cache_.file("hub/CACHEDIR.TAG")));
  EXPECT_EQ(bytes_, 23 + 2 + weights_.size());
}

TEST_F(HubTest, WhatIsInTheCacheIsNotAskedFor) {
  fetch({"config.json"});
  const size_t num_requests = server_.requests().size();
  EXPECT_EQ(num_requests, 3u);  // revision, tree, file
  server_.add(kModel, "config.json", "{\"model_type\": \"qwen3\"}");
  EXPECT_EQ(fetched("config.json"), "{\"model_type\": \"llama\"}");
  EXPECT_EQ(server_.requests().size(), num_requests);
  settings_.is_offline = true;
  EXPECT_EQ(fetched("config.json"), "{\"model_type\": \"llama\"}");
  EXPECT_EQ(server_.requests().size(), num_requests);
}

TEST_F(HubTest, OfflineSaysWhatIsNotThere) {
  settings_.is_offline = true;
  EXPECT_EQ(error_of<HubError>([&] { hub().open(kRepository); }),
            cat("model 'org/name' is not in the cache ", settings_.cache,
                ", and HF_HUB_OFFLINE forbids to ask for it"));
  settings_.is_offline = false;
  const Snapshot snapshot = fetch({"config.json"});
  settings_.is_offline = true;
  EXPECT_EQ(error_of<HubError>([&] { fetch({"model.safetensors"}); }),
            cat("model.safetensors of model 'org/name' is not in the cache (", snapshot.folder,
                "), and HF_HUB_OFFLINE forbids to fetch it"));
}

TEST_F(HubTest, BranchesTagsAndCommitsAreRevisions) {
  server_.add_reference(kModel, "refs/pr/1");
  const std::string before = server_.commit(kModel);
  server_.add(kModel, "config.json", "{}");
  Hub one = hub();
  EXPECT_EQ(one.open({RepositoryKind::kModel, "org/name", "refs/pr/1"}).commit, before);
  EXPECT_EQ(one.open({RepositoryKind::kModel, "org/name", before}).commit, before);
  EXPECT_EQ(one.open(kRepository).commit, server_.commit(kModel));
  EXPECT_EQ(read_file(cache_.file("hub/models--org--name/refs/refs/pr/1")), before);
  EXPECT_EQ(error_of<HubError>([&] {
              one.open({RepositoryKind::kModel, "org/name", "v9"});
            }),
            cat("model 'org/name' at v9: there is no branch, tag or commit 'v9'; ",
                server_.endpoint(), "/org/name/tree/main has the list"));
}

TEST_F(HubTest, ListingsComeInPages) {
  server_.set_page_size(1);
  EXPECT_EQ(hub().open(kRepository).files.size(), 3u);
  EXPECT_EQ(server_.num_requests("/tree/"), 3u);
}

TEST_F(HubTest, DataSetsHaveFoldersAndAddressesOfTheirOwn) {
  server_.add("datasets/org/rows", "data/train.jsonl", "{}\n");
  Hub one = hub();
  const Repository rows{RepositoryKind::kDataset, "org/rows", "main"};
  const Snapshot snapshot = one.open(rows);
  one.fetch(rows, snapshot, {"data/train.jsonl"});
  EXPECT_EQ(snapshot.folder, cache_.file("hub/datasets--org--rows/snapshots/") + snapshot.commit);
  EXPECT_EQ(read_file(snapshot.folder + "/data/train.jsonl"), "{}\n");
  EXPECT_EQ(server_.num_requests("/datasets/org/rows/resolve/"), 1u);
}

TEST_F(HubTest, FailuresThatPassAreTriedAgain) {
  server_.add_faults("/revision/", {{.status = 500}, {.status = 503}});
  server_.add_faults("/store/", {{.status = 429, .retry_after = "0"},
                                 {.status = 502},
                                 {.cut_after = 1 << 20},
                                 {.cut_after = 1000, .is_short = true}});
  EXPECT_EQ(fetched("model.safetensors"), weights_);
  ASSERT_EQ(warnings_.texts.size(), 6u);
  EXPECT_EQ(warnings_.texts[0],
            cat("asking ", server_.endpoint(),
                " for model 'org/name': HTTP status 500; trying again in 0.0 s"));
  EXPECT_EQ(
      warnings_.texts[2],
      "model.safetensors of model 'org/name': too many requests (429); trying again in 0.0 s");
  EXPECT_EQ(warnings_.texts[5],
            cat("model.safetensors of model 'org/name': the answer ended after ", (1 << 20) + 1000,
                " of ", 3 << 20, " bytes; trying again in 0.0 s"));
  // What had come was not asked for again.
  std::vector<std::string> ranges;
  for (const auto& request : server_.requests()) {
    if (request.target.starts_with("/store/")) ranges.push_back(request.range);
  }
  EXPECT_THAT(ranges, ElementsAre("", "", "", cat("bytes=", 1 << 20, "-"),
                                  cat("bytes=", (1 << 20) + 1000, "-")));
}

TEST_F(HubTest, FailuresThatStayEndAfterSomeAttempts) {
  server_.add_faults("config.json", std::vector<HubFault>(20, HubFault{.status = 500}));
  settings_.num_attempts = 3;
  EXPECT_EQ(error_of<HubError>([&] { fetch({"config.json"}); }),
            "config.json of model 'org/name': HTTP status 500 (3 attempts)");
  EXPECT_EQ(server_.num_requests("config.json"), 3u);
}

/// Such as a proxy that answers with a page of its own, or that ends early and knows no ranges.
TEST_F(HubTest, BytesThatOnlyComeAgainAreNoProgress) {
  server_.add_faults(
      "/store/", std::vector<HubFault>(
                     20, HubFault{.cut_after = 1000, .is_short = true, .knows_no_ranges = true}));
  settings_.num_attempts = 3;
  EXPECT_EQ(error_of<HubError>([&] { fetch({"model.safetensors"}); }),
            cat("model.safetensors of model 'org/name': the answer ended after 1000 of ", 3 << 20,
                " bytes (3 attempts)"));
  EXPECT_EQ(server_.num_requests("/store/"), 3u);
}

TEST_F(HubTest, AServerThatAsksForALongPauseIsToldOf) {
  server_.add_faults("/revision/", {{.status = 429, .retry_after = "7200"}});
  EXPECT_EQ(error_of<HubError>([&] { hub().open(kRepository); }),
            cat("asking ", server_.endpoint(),
                " for model 'org/name': too many requests (429): the "
                "server asks to wait 2 h 00 min; start again then"));
}

TEST_F(HubTest, AServerThatFallsSilentIsAskedAgain) {
  settings_.stall_seconds = 1;
  server_.add_faults("config.json", {{.pause_seconds = 60}});
  EXPECT_EQ(fetched("config.json"), "{\"model_type\": \"llama\"}");
  EXPECT_EQ(server_.num_requests("config.json"), 2u);
}

TEST_F(HubTest, BytesOfAnotherChecksumAreNeverTaken) {
  server_.add_faults("/store/", {{.has_wrong_bytes = true}});
  EXPECT_EQ(fetched("model.safetensors"), weights_);
  EXPECT_THAT(warnings_.texts,
              ElementsAre("model.safetensors of model 'org/name': the checksum of what came is "
                          "wrong; fetching it again"));
  server_.add_faults("config.json", {{.has_wrong_bytes = true}, {.has_wrong_bytes = true}});
  EXPECT_THAT(error_of<HubError>([&] { fetch({"config.json"}); }),
              testing::StartsWith("config.json of model 'org/name': its checksum is "));
  EXPECT_THAT(list_directory(cache_.file("hub/models--org--name/blobs")), testing::SizeIs(1));
}

TEST_F(HubTest, AnEarlierDownloadGoesOn) {
  const std::string etag = weights_etag();
  cache_.write("hub/models--org--name/blobs/" + etag + ".incomplete", weights_.substr(0, 2000000));
  EXPECT_EQ(fetched("model.safetensors"), weights_);
  EXPECT_EQ(server_.requests().back().range, "bytes=2000000-");
  EXPECT_EQ(bytes_, weights_.size());
  EXPECT_FALSE(path_exists(blob(etag) + ".incomplete"));
}

TEST_F(HubTest, AnEarlierDownloadOfOtherOrTooManyBytesBeginsAnew) {
  const std::string etag = weights_etag();
  const std::string incomplete = "hub/models--org--name/blobs/" + etag + ".incomplete";
  for (const std::string& left : {std::string(2000000, 'x'), weights_ + "more"}) {
    remove_tree(blob(etag));
    remove_tree(cache_.file("hub/models--org--name/snapshots"));
    cache_.write(incomplete, left);
    EXPECT_EQ(fetched("model.safetensors"), weights_);
  }
  EXPECT_THAT(warnings_.texts,
              ElementsAre("model.safetensors of model 'org/name': the checksum of what an earlier "
                          "download began is wrong; fetching it again"));
}

TEST_F(HubTest, AServerWithoutRangesSendsAllAgain) {
  const std::string etag = weights_etag();
  cache_.write("hub/models--org--name/blobs/" + etag + ".incomplete", weights_.substr(0, 2000000));
  server_.add_faults("/store/", {{.knows_no_ranges = true}});
  EXPECT_EQ(fetched("model.safetensors"), weights_);
  EXPECT_THAT(warnings_.texts, testing::IsEmpty());
}

TEST_F(HubTest, TheTokenGoesToTheHubAlone) {
  server_.demand_token(kModel, "hf_secret");
  settings_.token = "hf_secret";
  EXPECT_EQ(fetched("model.safetensors"), weights_);
  for (const auto& request : server_.requests()) {
    EXPECT_EQ(request.authorization,
              request.target.starts_with("/store/") ? "" : "Bearer hf_secret")
        << request.target;
  }
}

TEST_F(HubTest, WhatIsRefusedSaysWhatWouldBeRight) {
  const std::string endpoint = server_.endpoint();
  const auto text = [&] { return error_of<HubError>([&] { hub().open(kRepository); }); };
  server_.demand_token(kModel, "right");
  EXPECT_EQ(text(), cat("model 'org/name' is gated: ask for access at ", endpoint,
                        "/org/name, and set HF_TOKEN"));
  settings_.token = "wrong";
  EXPECT_EQ(text(), cat("model 'org/name' is gated: ask for access at ", endpoint,
                        "/org/name, with the account of the token"));
  server_.demand_token(kModel, "right", "RepoNotFound", 401);
  EXPECT_EQ(text(), cat(endpoint,
                        " does not give model 'org/name' (401): the token may not read "
                        "it: check its name, and HF_TOKEN"));
  settings_.token = "";
  EXPECT_EQ(text(), cat(endpoint,
                        " does not give model 'org/name' (401): check its name; a private or "
                        "gated one needs HF_TOKEN, or `hf auth login`"));
  EXPECT_EQ(error_of<HubError>([&] {
              hub().open({RepositoryKind::kDataset, "org/none", "main"});
            }),
            cat(endpoint,
                " has no dataset 'org/none': check its name (it says: Repository not "
                "found)"));
  EXPECT_EQ(server_.requests().size(), 5u);  // none of them twice
}

TEST_F(HubTest, AServerThatIsNoHubIsNamed) {
  server_.add_faults("/revision/", {{.status = 200}});
  EXPECT_THAT(error_of<HubError>([&] { hub().open(kRepository); }),
              testing::EndsWith(cat("; is HF_ENDPOINT (", server_.endpoint(), ") a hub?")));
}

TEST_F(HubTest, NobodyAnsweringIsAnErrorThatNamesTheHub) {
  settings_.endpoint = "http://127.0.0.1:9";
  settings_.num_attempts = 2;
  EXPECT_THAT(
      error_of<HubError>([&] { hub().open(kRepository); }),
      testing::AllOf(testing::StartsWith("asking http://127.0.0.1:9 for model 'org/name': "),
                     testing::EndsWith(" (2 attempts)")));
}

TEST_F(HubTest, ANameThatIsNoHostsIsAskedForAgainToo) {
  settings_.endpoint = "http://no-such-host.invalid";
  settings_.num_attempts = 3;
  EXPECT_THAT(error_of<HubError>([&] { hub().open(kRepository); }),
              testing::EndsWith(" (3 attempts)"));
}

TEST_F(HubTest, ASnapshotOfPythonWithoutAListingIsTakenWhereTheHubIsSilent) {
  const std::string commit(40, 'a');
  cache_.write("hub/models--org--name/refs/main", commit);
  cache_.write("hub/models--org--name/snapshots/" + commit + "/config.json", "{}");
  settings_.endpoint = "http://127.0.0.1:9";
  settings_.num_attempts = 1;
  const Snapshot snapshot = hub().open(kRepository);
  EXPECT_FALSE(snapshot.is_listed);
  EXPECT_EQ(snapshot.files.size(), 1u);
  EXPECT_THAT(warnings_.texts[0],
              testing::EndsWith("; taking model 'org/name' as it is in the cache"));
  EXPECT_EQ(error_of<HubError>([&] { hub().fetch(kRepository, snapshot, {"vocab.json"}); }),
            cat("vocab.json of model 'org/name' is not in the cache (", snapshot.folder,
                "), and the hub could not be asked for it"));
}

TEST_F(HubTest, ListingsThatLeadOutOfTheCacheAreRefused) {
  server_.add(kModel, "../../../../evil", "x");
  EXPECT_THAT(error_of<HubError>([&] { hub().open(kRepository); }),
              testing::HasSubstr(": not a listing of files: '../../../../evil' is no path in a "
                                 "repository; is HF_ENDPOINT ("));
  for (const char* id : {"../x", "a/b/c", "/etc", ""}) {
    EXPECT_EQ(error_of<UserError>([&] {
                hub().open({RepositoryKind::kModel, id, "main"});
              }),
              cat("'", id, "' is no name of the hub: use org/name"));
  }
}

TEST_F(HubTest, AListingThatGoesOnAtItselfEnds) {
  server_.set_page_size(0);
  EXPECT_THAT(error_of<HubError>([&] { hub().open(kRepository); }),
              testing::HasSubstr("cursor=0: the listing goes on at its own address"));
}

TEST_F(HubTest, AKilledDownloadIsNeverTakenForWholeAndGoesOn) {
  server_.add_faults("/store/", {{.cut_after = 1 << 20}, {.pause_seconds = 60}});
  settings_.backoff_seconds = 0.001;
  const std::string etag = weights_etag();
  const pid_t child = ::fork();
  if (child == 0) {
    test::Warnings silent;
    Hub one(settings_, silent);
    one.fetch(kRepository, one.open(kRepository), {"model.safetensors"});
    ::_exit(0);
  }
  const std::string incomplete = blob(etag) + ".incomplete";
  // The second request has no answer yet when the child ends.
  while (server_.num_requests("/store/") < 2) std::this_thread::yield();
  EXPECT_EQ(file_size(incomplete), 1U << 20);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(path_exists(blob(etag)));
  EXPECT_FALSE(path_exists(hub().open(kRepository).folder + "/model.safetensors"));
  EXPECT_EQ(fetched("model.safetensors"), weights_);
  EXPECT_EQ(server_.requests().back().range, cat("bytes=", 1 << 20, "-"));
}

TEST_F(HubTest, OfSeveralThatWantTheSameOneFetchesIt) {
  server_.add_faults("/store/", {{.pause_seconds = 0.3}});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      test::Warnings silent;
      Hub one(settings_, silent);
      const Snapshot snapshot = one.open(kRepository);
      one.fetch(kRepository, snapshot, {"config.json", "model.safetensors"});
      EXPECT_EQ(read_file(snapshot.folder + "/model.safetensors"), weights_);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server_.num_requests("/revision/"), 1u);
  EXPECT_EQ(server_.num_requests("/tree/"), 1u);
  EXPECT_EQ(server_.num_requests("config.json"), 1u);
  EXPECT_EQ(server_.num_requests("/store/"), 1u);
}

TEST_F(HubTest, AFailureStopsTheOtherDownloads) {
  server_.add_faults("/store/", {{.pause_seconds = 60}});
  server_.add_faults("config.json", {{.status = 403}});
  EXPECT_THAT(error_of<HubError>([&] {
                fetch({"model.safetensors", "config.json"});
              }),
              testing::HasSubstr("does not give config.json of model 'org/name' (403)"));
}

TEST_F(HubTest, AFailureEndsTheWaitsOfOtherDownloads) {
  server_.add_faults("/store/", {{.status = 429, .retry_after = "60"}});
  server_.add_faults("config.json", {{.status = 403, .pause_seconds = 1}});
  const double begin = monotonic_seconds();
  EXPECT_THAT(error_of<HubError>([&] {
                fetch({"model.safetensors", "config.json"});
              }),
              testing::HasSubstr("does not give config.json of model 'org/name' (403)"));
  EXPECT_LT(monotonic_seconds() - begin, 20);
}

TEST_F(HubTest, PartsOfAModelAreTheFilesThatAreNeeded) {
  for (const char* path : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "generation_config.json", "pytorch_model.bin", "README.md"}) {
    server_.add(kModel, path, "{}");
  }
  server_.add(kModel, "model-1.safetensors", "1", true);
  server_.add(kModel, "model-2.safetensors", "2", true);
  Hub one = hub();
  Snapshot snapshot = one.open(kRepository);
  const auto files = [&](ModelPart part) { return model_files(kRepository, snapshot, part); };
  EXPECT_THAT(files(ModelPart::kConfig), ElementsAre("config.json"));
  EXPECT_THAT(files(ModelPart::kTokenizer),
              ElementsAre("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"));
  EXPECT_THAT(files(ModelPart::kWeights),
              ElementsAre("generation_config.json", "model.safetensors"));
  server_.add(kModel, "model.safetensors.index.json",
              R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors",
                                 "c": "model-1.safetensors"}})");
  remove_tree(cache_.file("hub"));
  snapshot = one.open(kRepository);
  fetch_model_part(one, kRepository, snapshot, ModelPart::kWeights);
  EXPECT_THAT(list_directory(snapshot.folder),
              UnorderedElementsAre("generation_config.json", "model-1.safetensors",
                                   "model-2.safetensors", "model.safetensors.index.json"));
}

TEST_F(HubTest, ModelsWithoutSafetensorsAreRefused) {
  server_.add("models/org/old", "pytorch_model.bin", "x");
  const Repository old{RepositoryKind::kModel, "org/old", "main"};
  Hub one = hub();
  const Snapshot snapshot = one.open(old);
  EXPECT_EQ(error_of<HubError>([&] { model_files(old, snapshot, ModelPart::kWeights); }),
            "model 'org/old' has no model.safetensors and no model.safetensors.index.json; its "
            ".bin files can run code when loaded and are not read: take a revision with "
            "safetensors (refs/pr/...)");
}

TEST(HubSettings, AreThoseOfPythonsEnvironment) {
  const test::TemporaryDirectory home;
  home.write("token", "hf_file\n");
  std::map<std::string, std::string> variables = {{"HF_HOME", home.path()}, {"HOME", "/home/me"}};
  const auto settings = [&] {
    return Settings::from_environment([&](const char* name) { return variables[name]; });
  };
  EXPECT_EQ(settings().endpoint, "https://huggingface.co");
  EXPECT_EQ(settings().token, "hf_file");
  EXPECT_EQ(settings().cache, home.path() + "/hub");
  EXPECT_FALSE(settings().is_offline);
  variables["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1";
  EXPECT_EQ(settings().token, "");
  variables = {{"HOME", "/home/me"},
               {"HF_TOKEN", " hf_variable\n"},
               {"HF_HUB_CACHE", "~/models"},
               {"HF_HUB_OFFLINE", "1"},
               {"HF_HUB_DOWNLOAD_TIMEOUT", "30"},
               {"HF_ENDPOINT", "http://mirror:80//"}};
  EXPECT_EQ(settings().endpoint, "http://mirror:80");
  EXPECT_EQ(settings().token, "hf_variable");
  EXPECT_EQ(settings().cache, "/home/me/models");
  EXPECT_EQ(settings().stall_seconds, 30);
  EXPECT_TRUE(settings().is_offline);
  variables = {{"HOME", "/home/me"}, {"XDG_CACHE_HOME", "/caches"}};
  EXPECT_EQ(settings().cache, "/caches/huggingface/hub");
  variables = {{"HF_ENDPOINT", "huggingface.co"}};
  EXPECT_EQ(error_of<UserError>(settings),
            "HF_ENDPOINT must begin with https:// or http://, found 'huggingface.co'; the usual "
            "one is https://huggingface.co");
}

}  // namespace
}  // namespace automodel::hub
