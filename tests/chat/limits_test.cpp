#include <gtest/gtest.h>

#include <chrono>

#include "chat/chat_template.h"
#include "support/cpu_seconds.h"

namespace automodel::chat {
namespace {

std::string error_of(const std::string& source, const Json& variables = Json::object()) {
  try {
    ChatTemplate(source, "chat.jinja").render(variables, 0);
  } catch (const TemplateError& error) {
    return error.what();
  }
  return "";
}

TEST(ChatLimitsTest, ErrorsNameTemplateLineAndColumn) {
  EXPECT_EQ(error_of("a\n  {{ raise_exception('no tools') }}"), "chat.jinja:2:21: error: no tools");
  EXPECT_EQ(error_of("{{ x.y.z }}"), "chat.jinja:1:6: error: 'x' is undefined");
  EXPECT_EQ(error_of("ü {% if true %}"),
            "chat.jinja:1:16: error: Unexpected end of template. Jinja was looking for the "
            "following tags: 'elif' or 'else' or 'endif'. The innermost block that needs to be "
            "closed is 'if'.");
}

TEST(ChatLimitsTest, IntegersOfTheDataThatDoNotFitAreRefused) {
  const auto with = [](const char* number) {
    return Json::parse(std::string(R"({"x": {"id": [)") + number + "]}}", "data");
  };
  EXPECT_EQ(error_of("{{ x | tojson }}", with("18446744073709551615")),
            "chat.jinja: error: an integer of the data does not fit into 64 bits");
  EXPECT_EQ(error_of("{{ x | tojson }}", with("9223372036854775807")), "");
}

TEST(ChatLimitsTest, LoopsThatGoOnForEverEnd) {
  const std::string nested =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of(nested),
            "chat.jinja:1:31: error: the template takes too long: more than 20000000 operations; "
            "does a loop go on for ever?");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(ChatLimitsTest, GeneratorsOverGeneratorsEndAtTheDepth) {
  for (const std::string filter : {"map('string')", "select"}) {
    EXPECT_NE(
        error_of("{% set ns = namespace(s=[1]) %}{% for i in range(60000) %}{% set ns.s = ns.s | " +
                 filter + " %}{% endfor %}{{ ns.s | list }}")
            .find("maximum recursion depth exceeded"),
        std::string::npos)
        << filter;
  }
}

/// A rendering ends within seconds of a core, with a text or an error.
void expect_short(const std::string& source) {
  SCOPED_TRACE(source);
  const double begin = test::thread_cpu_seconds();
  error_of(source);
  EXPECT_LT(test::thread_cpu_seconds() - begin, 3);
}

TEST(ChatLimitsTest, HashesOfSharedTuplesCount) {
  expect_short(
      "{% set ns = namespace(s=(1,)) %}{% for i in range(28) %}{% set ns.s = (ns.s, ns.s) %}"
      "{% endfor %}{% set d = {ns.s: 1} %}{% set d = {ns.s: 1} %}{% set d = {ns.s: 1} %}");
}

TEST(ChatLimitsTest, SearchesInLongTextsAreShort) {
  const std::string texts =
      "{% set a = 'a' * 1000000 %}{% set b = 'a' * 500000 ~ 'b' %}{% set c = 'b' ~ 'a' * 500000 %}";
  for (const std::string call :
       {"b in a", "a.find(b)", "a.count(b)", "a.split(b)", "a.replace(b, '')", "a.partition(b)",
        "a.rfind(c)", "a.rsplit(c)", "a.rpartition(c)"}) {
    expect_short(texts + "{% set x = " + call + " %}");
  }
}

TEST(ChatLimitsTest, StrippingOfManyCharactersIsShort) {
  expect_short("{% set x = ('a' * 1000000).strip('b' * 1000000 ~ 'a') %}");
  expect_short("{% set x = ('a' * 1000000) | trim('b' * 1000000 ~ 'a') %}");
}

TEST(ChatLimitsTest, ClassesOfCharactersAndDatesCount) {
  expect_short(
      "{% set a = 'é' * 1000000 %}{% for i in range(99999) %}{% set x = a.isalpha() %}{% endfor "
      "%}");
  expect_short(
      "{% set a = '%c' * 100 %}{% for i in range(99999) %}{% set x = strftime_now(a) %}{% endfor "
      "%}");
}

TEST(ChatLimitsTest, RecursionWithoutEndIsAnError) {
  EXPECT_EQ(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
            "chat.jinja:1:20: error: maximum recursion depth exceeded");
  const std::string nest =
      "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}"
      "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}";
  EXPECT_EQ(error_of(nest), "chat.jinja:1:92: error: maximum recursion depth exceeded");
}

TEST(ChatLimitsTest, TextsAndListsThatGrowWithoutEndAreAnError) {
  EXPECT_EQ(error_of("{{ 'a' * 9999999999 }}"),
            "chat.jinja:1:8: error: a text of the template is too long");
  EXPECT_EQ(error_of("{{ 'a' * 999999999 }}"),
            "chat.jinja:1:8: error: the template takes too long: more than 20000000 operations; "
            "does a loop go on for ever?");
  EXPECT_EQ(error_of("{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
                     "{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
            "chat.jinja:1:71: error: the template needs more than 512 MiB of memory");
  EXPECT_EQ(error_of("{{ range(100000) | list * 100000 }}"),
            "chat.jinja:1:25: error: a list of the template is too long");
  EXPECT_EQ(error_of("{{ '%999999999d' % 1 }}"),
            "chat.jinja:1:18: error: a width or precision of a format is too large");
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}"),
            "chat.jinja:1:24: error: an integer of the template does not fit into 64 bits");
}

TEST(ChatLimitsTest, TemplatesThatAreNestedTooDeepAreRefused) {
  std::string deep(5000, '(');
  EXPECT_EQ(error_of("{{ " + deep + "1" + std::string(5000, ')') + " }}"),
            "chat.jinja:1:33: error: the template is nested too deep");
  std::string blocks, sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) {
    blocks += "{% if true %}";
    sum += " + 1";
  }
  EXPECT_EQ(error_of(blocks), "chat.jinja:1:1528: error: the template is nested too deep");
  EXPECT_EQ(error_of(sum + " }}"), "chat.jinja:1:1606: error: the expression is nested too deep");
}

TEST(ChatLimitsTest, TheSandboxKeepsWhatIsHandedInUnchanged) {
  const Json variables = Json::parse(R"({"messages": [1], "d": {"a": 1}})", "test");
  EXPECT_EQ(error_of("{{ messages.append(2) }}", variables),
            "chat.jinja:1:19: error: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(error_of("{{ d.update(a=2) }}", variables),
            "chat.jinja:1:12: error: access to attribute 'update' of 'dict' object is unsafe.");
  EXPECT_NE(error_of("{{ ''.__class__.__mro__ }}"), "");
}

TEST(ChatLimitsTest, StrftimeNowShowsTheTimeThatIsHandedIn) {
  const ChatTemplate chat("{{ strftime_now('%d %b %Y %H:%M:%S%f%Z') }}", "chat.jinja");
  EXPECT_EQ(chat.render(Json::object(), 1754051696).text, "01 Aug 2025 12:34:56000000");
}

}  // namespace
}  // namespace automodel::chat
