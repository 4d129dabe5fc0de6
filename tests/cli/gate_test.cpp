#include "cli_fixture.h"

#include <nlohmann/json.hpp>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <pugixml.hpp>
#include <set>
#include <string>
#include <utility>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Gate : public CliTest {
 protected:
  // `layouts` and `allow` are the lines below these keys; `reference` are switches of its program.
  void write_file(const std::string& layouts,
                  const std::string& allow = "",
                  const std::string& switches = "") const {
    write_file_of(trainer(switches), layouts, allow);
  }
  void write_file_of(const std::string& reference,
                     const std::string& layouts,
                     const std::string& allow = "") const {
    std::ofstream(folder_ / "gate.yaml")
        << "store: store\nreferences:\n  small:\n    command: " << reference
        << "\n    made_from: [config]\n    check: {noise: 1}\nlayouts:\n"
        << layouts << (allow.empty() ? "" : "allow:\n") << allow;
    if (!std::filesystem::exists(folder_ / "config")) {
      std::ofstream(folder_ / "config") << "hidden: 8\n";
    }
  }
  [[nodiscard]] std::string layout(const std::string& name, const std::string& switches) const {
    return "  " + name + ": " + trainer(switches) + "\n";
  }
  [[nodiscard]] ProcessResult gate(const std::string& output,
                                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"gate", "gate.yaml", "-o", output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return ttrace(arguments);
  }
  [[nodiscard]] bool exists(const std::string& name) const {
    return std::filesystem::exists(folder_ / name);
  }
  [[nodiscard]] nlohmann::json summary(const std::string& output) const {
    return nlohmann::json::parse(file(output + "/summary.json"));
  }
};

TEST_F(Gate, MakesTheReferenceOnceAndPassesRightLayouts) {
  write_file(layout("one", "--ranks 2") + layout("two", "--ranks 4"));
  const ProcessResult first = gate("first");
  ASSERT_EQ(first.exit_code, 0) << first.out << first.err;
  EXPECT_THAT(first.out,
              AllOf(HasSubstr("reference small: made in "),
                    HasSubstr("one: within bound ("),
                    HasSubstr("all of 2 layouts within bound; summary: first/summary.html")));
  EXPECT_FALSE(exists("store/small/candidate")) << "layouts bring their own";
  const ProcessResult second = gate("second");
  EXPECT_EQ(second.exit_code, 0) << second.out << second.err;
  EXPECT_THAT(second.out, Not(HasSubstr("made in")));
  for (const char* name : {"summary.html", "summary.md", "one.html", "one.txt", "one.md"}) {
    EXPECT_TRUE(exists("second/" + std::string(name))) << name;
  }
  EXPECT_EQ(nlohmann::json::parse(file("second/sarif/one.sarif")).at("version"), "2.1.0");
}

TEST_F(Gate, ADivergenceFailsItAndIsNamedInEverySummary) {
  write_file(layout("right", "--ranks 2") + layout("wrong", "--ranks 2 --differ"));
  ProcessOptions asked = options({"gate", "gate.yaml", "-o", "out"});
  asked.environment = {{"GITHUB_STEP_SUMMARY", folder_ / "job.md"}};
  const ProcessResult result = run_process(asked);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const std::string id = "s0/m0/output/decoder.layers.0.mlp.linear_fc2/0";
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("right: within bound"),
                    HasSubstr("wrong: DIVERGED"),
                    HasSubstr("  first divergence: " + id + "\n"),
                    HasSubstr("  report: out/wrong.txt\n"),
                    HasSubstr("1 of 2 layouts diverged, 1 within bound")));
  for (const char* name : {"job.md", "out/summary.md", "out/summary.html"}) {
    EXPECT_THAT(file(name), AllOf(HasSubstr("wrong"), HasSubstr(id))) << name;
  }
  const nlohmann::json json = summary("out");
  EXPECT_EQ(json.at("exit_code"), 1);
  EXPECT_EQ(json.at("layouts").at(1).at("first_divergence"), id);
  pugi::xml_document junit;
  ASSERT_TRUE(junit.load_file((folder_ / "out/junit/wrong.xml").c_str()));
  EXPECT_GT(junit.child("testsuites").attribute("failures").as_int(), 0);
}

// Symptom: GitLab knows a test of a job by module and name, and showed the tests of one layout
// alone.
TEST_F(Gate, TestsOfLayoutsHaveNamesOfTheirOwn) {
  write_file(layout("right", "--ranks 2") + layout("wrong", "--ranks 2 --differ"));
  EXPECT_EQ(gate("out").exit_code, 1);
  std::set<std::pair<std::string, std::string>> known;
  std::size_t tests = 0;
  for (const std::string name : {"right", "wrong"}) {
    pugi::xml_document junit;
    ASSERT_TRUE(junit.load_file((folder_ / ("out/junit/" + name + ".xml")).c_str()));
    for (const pugi::xpath_node& found : junit.select_nodes("//testcase")) {
      const std::string test = found.node().attribute("name").value();
      EXPECT_TRUE(test.starts_with(name + ": s0/")) << test;
      known.emplace(found.node().attribute("classname").value(), test);
      ++tests;
    }
  }
  EXPECT_GT(tests, 0U);
  EXPECT_EQ(known.size(), tests);
}

TEST_F(Gate, AFileThatTheReferenceIsMadeFromMakesItStaleUntilItIsRenewed) {
  write_file(layout("one", "--ranks 2"));
  ASSERT_EQ(gate("first").exit_code, 0);
  std::ofstream(folder_ / "config") << "hidden: 16\n";
  const ProcessResult stale = gate("stale");
  EXPECT_EQ(stale.exit_code, 2);
  EXPECT_TRUE(
      stale.out.starts_with("the stored reference small is stale: these files changed: config"))
      << stale.out;
  EXPECT_THAT(stale.out, HasSubstr("ttrace gate gate.yaml --renew"));
  EXPECT_FALSE(exists("stale/one")) << "its layouts are not run";
  EXPECT_EQ(summary("stale").at("layouts").at(0).at("outcome"), "STALE REFERENCE");
  EXPECT_EQ(gate("renewed", {"--renew"}).exit_code, 0);
  EXPECT_EQ(gate("after").exit_code, 0);
}

TEST_F(Gate, AnotherCommandMakesTheReferenceStale) {
  write_file(layout("one", "--ranks 2"));
  ASSERT_EQ(gate("first").exit_code, 0);
  write_file(layout("one", "--ranks 2"), "", "--hidden 16");
  const ProcessResult stale = gate("stale");
  EXPECT_EQ(stale.exit_code, 2);
  EXPECT_THAT(stale.out, HasSubstr("--hidden 16"));
}

TEST_F(Gate, AnotherVersionOfALibraryMakesTheReferenceStaleUnlessItMayDiffer) {
  write_file(
      layout("one", "--ranks 2 --torch 2.14") + layout("two", "--ranks 2"), "", "--torch 2.13");
  const ProcessResult stale = gate("stale");
  EXPECT_EQ(stale.exit_code, 2) << stale.err;
  EXPECT_THAT(stale.out,
              AllOf(HasSubstr("the version of torch was 2.13 and is 2.14 now"),
                    HasSubstr("one: STALE REFERENCE")));
  EXPECT_FALSE(exists("stale/two")) << "the rest of its layouts is left out";
  const std::string text = file("gate.yaml");
  std::ofstream(folder_ / "gate.yaml")
      << std::string(text).replace(text.find("    made_from"), 0, "    may_differ: [torch]\n");
  EXPECT_EQ(gate("allowed").exit_code, 0);
}

TEST_F(Gate, ADifferenceMayBeAllowedWithAReasonUntilADay) {
  const std::string wrong = layout("wrong", "--ranks 2 --differ");
  const auto entry = [](const std::string& pattern, const std::string& day) {
    return "  - {failed: '" + pattern + "', reason: issue 7, expires: " + day + "}\n";
  };
  write_file(wrong, entry("output/.*linear_fc2", "2999-01-01"));
  const ProcessResult allowed = gate("allowed");
  EXPECT_EQ(allowed.exit_code, 0) << allowed.out << allowed.err;

  write_file(wrong, entry("output/.*linear_fc2", "2020-01-31"));
  const ProcessResult expired = gate("expired");
  EXPECT_EQ(expired.exit_code, 2);
  EXPECT_THAT(expired.err, AllOf(HasSubstr("expired on 2020-01-31"), HasSubstr("issue 7")));
  EXPECT_FALSE(exists("expired")) << "nothing runs";

  write_file(wrong,
             entry("output/.*linear_fc2", "2999-01-01") + entry("output/.*other", "2999-01-01"));
  const ProcessResult dead = gate("dead");
  EXPECT_EQ(dead.exit_code, 2);
  EXPECT_THAT(dead.out, HasSubstr("nothing needs the permission for 'output/.*other' any more"));
}

TEST_F(Gate, AnOptionThatMatchesNothingFailsIt) {
  write_file("  one:\n    command: " + trainer("--ranks 2") +
             "\n    check: {exclude: [no_such_module]}\n");
  const ProcessResult result = gate("out");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out, HasSubstr("layout one: --exclude 'no_such_module' matches no tensor"));
}

TEST_F(Gate, ALayoutThatCannotBeComparedIsToldApartFromADivergence) {
  write_file(layout("broken", "--ranks 2 --exit-before 3") + layout("right", "--ranks 2"));
  const ProcessResult result = gate("out");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("broken: COULD NOT BE COMPARED\n  problem: "),
                    HasSubstr("exited with status 3"),
                    HasSubstr("right: within bound")));
}

// Symptom: GitLab's view of tests showed nothing of a layout whose program had failed.
TEST_F(Gate, ALayoutThatCannotBeComparedHasATestWithAnError) {
  write_file(layout("broken", "--ranks 2 --exit-before 3") + layout("right", "--ranks 2"));
  ASSERT_EQ(gate("out").exit_code, 2);
  pugi::xml_document broken;
  ASSERT_TRUE(broken.load_file((folder_ / "out/junit/broken.xml").c_str()));
  const pugi::xml_node test = broken.select_node("/testsuites/testsuite/testcase").node();
  EXPECT_STREQ(test.attribute("name").value(), "broken: is compared");
  EXPECT_THAT(test.child("error").attribute("message").value(),
              AllOf(HasSubstr("COULD NOT BE COMPARED: "), HasSubstr("exited with status 3")));
  EXPECT_STREQ(broken.child("testsuites").attribute("errors").value(), "1");
  pugi::xml_document right;
  ASSERT_TRUE(right.load_file((folder_ / "out/junit/right.xml").c_str()));
  EXPECT_STREQ(right.child("testsuites").attribute("errors").value(), "0");
}

TEST_F(Gate, AReferenceThatDoesNotAgreeWithItselfIsRefused) {
  write_file_of("if [ $TTRACE_PASS = candidate ]; then " + trainer("--differ") + "; else " +
                    trainer() + "; fi",
                layout("one", "--ranks 2"));
  const ProcessResult result = gate("out");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("the reference small does not agree with itself"));
  EXPECT_FALSE(exists("store/small"));
}

TEST_F(Gate, OneLayoutCanBeChosen) {
  write_file(layout("one", "--ranks 2") + layout("wrong", "--ranks 2 --differ"));
  EXPECT_EQ(gate("out", {"--only", "one"}).exit_code, 0);
  EXPECT_FALSE(exists("out/wrong"));
  EXPECT_THAT(gate("none", {"--only", "wrogn"}).err, HasSubstr("the nearest is 'wrong'"));
}

// Each layout waits for the other one to begin, so that one after the other neither would end.
TEST_F(Gate, LayoutsRunSideBySideWhereTheMemoryHoldsThem) {
  const auto waits = [&](const std::string& own, const std::string& other) {
    return "  " + own + ":\n    command: touch " + own + ".began; until [ -e " + other +
           ".began ]; do sleep 0.01; done; " + trainer("--ranks 2") +
           "\n    check: {timeout: 5, no-forced: true}\n";
  };
  write_file(layout("one", "--ranks 2"));
  ASSERT_EQ(gate("first").exit_code, 0);
  write_file(waits("a", "b") + waits("b", "a"));
  const auto with_memory = [&](const std::string& output, const std::string& bytes) {
    std::ofstream(folder_ / "store/memory.json")
        << "{\"a\": " << bytes << ", \"b\": " << bytes << "}";
    std::filesystem::remove(folder_ / "a.began");
    std::filesystem::remove(folder_ / "b.began");
    return gate(output, {"--jobs", "2"});
  };
  const ProcessResult together = with_memory("together", "1000000");
  EXPECT_EQ(together.exit_code, 0) << together.out << together.err;
  const ProcessResult alone = with_memory("alone", "1000000000000000");
  EXPECT_EQ(alone.exit_code, 2) << "the first one waits in vain";
}

TEST_F(Gate, AnInterruptEndsAllThatRuns) {
  write_file(layout("one", "--ranks 2") + layout("hanging", "--ranks 2 --hang"));
  RunningProcess running(options({"gate", "gate.yaml", "-o", "out"}));
  ASSERT_TRUE(appears("out/hanging/candidate/manifest.json"));
  kill(running.pid(), SIGINT);
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_THAT(result.err, HasSubstr("interrupted"));
}

TEST_F(Gate, MistakesInTheFileAreNamedWithTheirLine) {
  const auto complaint = [&](const std::string& text) {
    std::ofstream(folder_ / "gate.yaml") << text;
    const ProcessResult result = gate("out");
    EXPECT_EQ(result.exit_code, 2) << text;
    return result.err;
  };
  const std::string head = "store: s\nreferences: {r: true}\n";
  EXPECT_THAT(complaint("store: s\nlayouts: {a: b}\n"), HasSubstr("`references` is missing"));
  EXPECT_THAT(complaint(head + "layouts: {a: {check: {}}}\n"),
              HasSubstr("gate.yaml:3: the layout a has no `command`"));
  EXPECT_THAT(complaint(head + "layouts: {a/b: c}\n"), HasSubstr("'a/b' names a folder"));
  EXPECT_THAT(complaint(head + "layouts: {a: {command: c, reference: q}}\n"),
              HasSubstr("names the reference 'q', which `references` does not have"));
  EXPECT_THAT(complaint(head + "layouts: {a: c}\nchecks: {}\n"),
              HasSubstr("unknown key \"checks\""));
  EXPECT_THAT(complaint(head + "layouts: {a: {command: c, check: {noize: 3}}}\n"),
              AllOf(HasSubstr("the layout a"), HasSubstr("--noise")));
  EXPECT_THAT(complaint(head + "layouts: {a: {command: c, check: {output: x}}}\n"),
              HasSubstr("which the gate sets itself"));
  EXPECT_THAT(complaint(head + "layouts: {a: c}\nallow: [{failed: x, expires: 2999-01-01}]\n"),
              HasSubstr("needs a `reason`"));
  EXPECT_THAT(complaint(head + "layouts: {a: c}\nallow: [{failed: x, reason: y}]\n"),
              HasSubstr("expires: 2027-03-01"));
  EXPECT_THAT(
      complaint(head + "layouts: {a: c}\nallow: [{failed: x, reason: y, expires: 2027-02-30}]\n"),
      HasSubstr("'2027-02-30'; it must be a day"));
  EXPECT_THAT(
      complaint(head + "layouts: {a: c}\nallow: [{failed: '(', reason: y, expires: 2999-01-01}]\n"),
      HasSubstr("'('"));
  EXPECT_THAT(
      complaint(
          "store: s\nreferences: {r: {command: 'true', made_from: [nowhere]}}\nlayouts: {a: c}\n"),
      HasSubstr("is made from 'nowhere', but no file has this name"));
  EXPECT_THAT(ttrace({"gate", "none.yaml"}).err, HasSubstr("cannot read the gate file none.yaml"));
}

}  // namespace
}  // namespace ttrace::testing
