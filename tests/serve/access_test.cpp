#include "serve/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace automodel::serve {
namespace {

using namespace std::string_view_literals;

TEST(AccessTest, OnlyNamesOfLoopbackAreTakenForIt) {
  for (const char* host : {"localhost", "LOCALHOST:8265", "127.0.0.1", "127.0.0.1:1", "127.8.9.10",
                           "[::1]", "[::1]:8265", "[0:0:0:0:0:0:0:1]:80"}) {
    EXPECT_TRUE(names_loopback(host)) << host;
  }
  for (const std::string_view host : {""sv,
                                      "evil.example"sv,
                                      "localhost.evil.example"sv,
                                      "127.0.0.1.evil.example:8265"sv,
                                      "evil.example:127.0.0.1"sv,
                                      "localhost:80:80"sv,
                                      "localhost:"sv,
                                      "localhost:8x"sv,
                                      "::1"sv,
                                      "[::1"sv,
                                      "[::1]x"sv,
                                      "[localhost]"sv,
                                      "[127.0.0.1]"sv,
                                      "10.0.0.1"sv,
                                      "0.0.0.0"sv,
                                      "[::]"sv,
                                      "127.0.0.1\0.evil"sv,
                                      "localhost "sv,
                                      "user@localhost"sv,
                                      "0x7f000001"sv,
                                      "127.1"sv}) {
    EXPECT_FALSE(names_loopback(host)) << host;
  }
}

TEST(AccessTest, OnlyTheWholeSecretIsTheSame) {
  EXPECT_TRUE(same_secret("correct horse", "correct horse"));
  for (const char* other :
       {"", "c", "correct hors", "correct horse ", "Correct horse", "xorrect horse"}) {
    EXPECT_FALSE(same_secret(other, "correct horse")) << other;
  }
}

TEST(AccessTest, ABearersTokenIsRead) {
  EXPECT_EQ(bearer_token("Bearer abc"), "abc");
  EXPECT_EQ(bearer_token("bearer  abc "), "abc");
  for (const char* other : {"", "Bearer", "Basic abc", "Bearerabc"})
    EXPECT_EQ(bearer_token(other), "");
}

TEST(AccessTest, SecretsDiffer) {
  EXPECT_EQ(random_secret(32).size(), 64U);
  EXPECT_NE(random_secret(32), random_secret(32));
}

TEST(AccessTest, HashesAreThoseOfBrowsers) {
  // echo -n 'alert(1)' | openssl dgst -sha256 -binary | base64
  EXPECT_EQ(policy_hash("alert(1)"), "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='");
}

TEST(AccessTest, AddressesHoldNoMarkup) {
  EXPECT_EQ(percent_encoded("a/b c<\"'>&?#%\xC3\xA4"), "a/b%20c%3c%22%27%3e%26%3f%23%25%c3%a4");
}

}  // namespace
}  // namespace automodel::serve
