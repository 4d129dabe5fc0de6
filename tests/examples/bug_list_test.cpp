// examples/megatron_mini/bugs.yaml: well formed, complete, and what the program and the page say.
#include "faults/planted.h"

#include <ttrace/tensor_id.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Key;

struct ListedBug {
  std::map<std::string, std::string> text;  // by key, of the keys with a plain value
  std::vector<std::string> rows;
  bool pending = false;    // without code
  std::string redeclared;  // when and why `expected` or `hint` was changed; empty: never
};

// Throws where a key is absent; its message has the line.
std::vector<ListedBug> listed_bugs(const YAML::Node& list) {
  std::vector<ListedBug> bugs;
  for (const auto& node : list["bugs"]) {
    ListedBug bug{.text = {},
                  .rows = node["rows"].as<std::vector<std::string>>(),
                  .pending = node["code"].IsDefined(),
                  .redeclared = {}};
    if (const YAML::Node change = node["redeclared"]) {
      bug.redeclared = "declared anew on " + change["date"].as<std::string>() + ": " +
                       change["reason"].as<std::string>();
    }
    for (const char* key : {"name",
                            "chapter",
                            "source",
                            "what",
                            "where",
                            "needs",
                            "layout",
                            "steps",
                            "expected",
                            "hint",
                            "size",
                            "difficulty"}) {
      bug.text[key] = node[key].as<std::string>();
    }
    bugs.push_back(std::move(bug));
  }
  return bugs;
}

class BugList : public ::testing::Test {
 protected:
  const YAML::Node list_ = YAML::LoadFile(MEGATRON_MINI_FOLDER "/bugs.yaml");
  const std::vector<ListedBug> bugs_ = listed_bugs(list_);

  [[nodiscard]] std::set<std::string> rows() const {
    std::set<std::string> all;
    for (const auto& bug : bugs_) {
      all.insert(bug.rows.begin(), bug.rows.end());
    }
    return all;
  }
};

// All matches of `pattern` in `text`, one after another.
std::vector<std::string> matches_of(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match) {
    found.push_back(match->str());
  }
  return found;
}

// "a(b|c)d|e" -> "a(b|c)d", "e"
std::vector<std::string> alternatives(const std::string& pattern) {
  std::vector<std::string> result(1);
  int depth = 0;
  for (const char c : pattern) {
    depth += c == '(' ? 1 : (c == ')' ? -1 : 0);
    if (c == '|' && depth == 0) {
      result.emplace_back();
    } else {
      result.back() += c;
    }
  }
  return result;
}

// The kinds that one alternative names: "s1/m0/(output|loss)/decoder..." -> output, loss. None
// where it does not begin with the step.
std::vector<std::string> kinds_of(const std::string& alternative) {
  const std::regex start(R"(^s\d/(?:m\d/)?(\([a-z_|]+\)|[a-z_]+)/)");
  std::smatch match;
  if (!std::regex_search(alternative, match, start)) {
    return {};
  }
  return matches_of(match[1].str(), "[a-z_]+");
}

TEST_F(BugList, HasAtLeastEightyBugsForEightyRowsUnderNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const auto& bug : bugs_) {
    EXPECT_TRUE(names.insert(bug.text.at("name")).second) << bug.text.at("name");
    EXPECT_TRUE(std::regex_match(bug.text.at("name"), std::regex("[a-z0-9]+(-[a-z0-9]+)*")));
    EXPECT_FALSE(bug.rows.empty()) << bug.text.at("name");
  }
  EXPECT_GE(names.size(), 80U);
  int of_projects = 0;
  for (const auto& row : rows()) {
    of_projects += row.front() == 'B' ? 1 : 0;
  }
  EXPECT_GE(of_projects, 80);
}

TEST_F(BugList, CoversEveryChapterThePapersFourteenAndTheCoreSet) {
  std::set<std::string> chapters;
  for (const auto& bug : bugs_) {
    EXPECT_TRUE(list_["chapters"][bug.text.at("chapter")].IsDefined()) << bug.text.at("name");
    chapters.insert(bug.text.at("chapter"));
  }
  for (int number = 1; number <= 11; ++number) {
    EXPECT_THAT(chapters, Contains("B." + std::to_string(number)));
  }
  EXPECT_THAT(rows(),
              IsSupersetOf({"T01",
                            "T02",
                            "T03",
                            "T04",
                            "T05",
                            "T06",
                            "T07",
                            "T08",
                            "T09",
                            "T10",
                            "T11",
                            "T12",
                            "T13",
                            "T14"}));
  EXPECT_THAT(rows(),
              IsSupersetOf({"B01",  "B02",  "B05",  "B07",  "B08",  "B13",  "B14",  "B26",  "B28",
                            "B32",  "B41",  "B42",  "B51",  "B60",  "B66",  "B70",  "B73",  "B82",
                            "B98",  "B106", "B111", "B115", "B118", "B125", "B127", "B129", "B134",
                            "B138", "B144", "B150", "B176", "B177", "B184", "N07"}));
}

TEST_F(BugList, SaysWhyARowWasNotPortedWhereNoBugStandsForIt) {
  const std::set<std::string> ported = rows();
  for (const auto& group : list_["not_ported"]) {
    EXPECT_FALSE(group["reason"].as<std::string>().empty());
    for (const auto& row : group["rows"]) {
      EXPECT_FALSE(ported.contains(row.as<std::string>())) << row.as<std::string>();
    }
  }
}

TEST_F(BugList, ExpectsTensorsOfKindsThatExist) {
  for (const auto& bug : bugs_) {
    SCOPED_TRACE(bug.text.at("name"));
    EXPECT_NO_THROW(const std::regex compiled(bug.text.at("expected")));
    for (const auto& alternative : alternatives(bug.text.at("expected"))) {
      const auto kinds = kinds_of(alternative);
      EXPECT_FALSE(kinds.empty()) << alternative;
      for (const auto& kind : kinds) {
        EXPECT_NO_THROW((void)ttrace::parse_kind(kind)) << alternative;
      }
    }
  }
}

// Symptom: `output/...` matched `grad_output/...`, and `main_grad/` any step.
TEST_F(BugList, ExpectsWholeIdsThatEndWithASlot) {
  for (const auto& bug : bugs_) {
    for (const auto& alternative : alternatives(bug.text.at("expected"))) {
      EXPECT_TRUE(std::regex_search(alternative, std::regex(R"((/(\d|\\d|\[\d+\])~?|\.\*)$)")))
          << bug.text.at("name") << ": " << alternative;
    }
  }
}

// A declaration that was changed after the runs says when, why and to what.
TEST_F(BugList, DatesAndExplainsEveryChangedDeclaration) {
  std::set<std::string> changed;
  for (const auto& node : list_["bugs"]) {
    if (!node["redeclared"]) {
      continue;
    }
    const YAML::Node& change = node["redeclared"];
    const auto name = node["name"].as<std::string>();
    changed.insert(name);
    EXPECT_TRUE(std::regex_match(change["date"].as<std::string>(), std::regex(R"(2026-\d\d-\d\d)")))
        << name;
    EXPECT_GE(change["reason"].as<std::string>().size(), 20U) << name;
    ASSERT_TRUE(change["expected"].IsDefined() || change["hint"].IsDefined()) << name;
    for (const char* key : {"expected", "hint"}) {
      if (change[key]) {
        EXPECT_NE(change[key].as<std::string>(), node[key].as<std::string>()) << name;
      }
    }
  }
  EXPECT_THAT(changed, ::testing::ElementsAre("fp8-casts-local-rows"));
}

TEST_F(BugList, NamesAxesAndRanksThatItsLayoutHas) {
  const std::set<std::string> axes = {"tp", "cp", "dp", "pp", "ep", "etp", "edp"};
  for (const auto& node : list_["bugs"]) {
    SCOPED_TRACE(node["name"].as<std::string>());
    if (node["axis"]) {
      EXPECT_THAT(axes, IsSupersetOf(node["axis"].as<std::vector<std::string>>()));
      EXPECT_FALSE(node["layout"].as<std::string>().empty()) << "one rank has no axes";
    }
    if (node["factor"]) {
      EXPECT_NO_THROW((void)node["factor"].as<double>());
      EXPECT_NE(node["factor"].as<double>(), 1.0);
    }
    int ranks = 1;
    for (const auto& axis :
         matches_of(node["layout"].as<std::string>(), "--(tp|cp|dp|pp) [0-9]+")) {
      ranks *= std::stoi(axis.substr(axis.find(' ')));
    }
    for (const auto& rank : node["ranks"]) {
      EXPECT_LT(rank.as<int>(), ranks);
    }
  }
}

TEST_F(BugList, SaysHowWellEveryRowOfThePaperIsKnown) {
  std::set<std::string> known;
  for (const auto& row : list_["paper"]) {
    known.insert(row.first.as<std::string>());
    EXPECT_THAT(row.second["known"].as<std::string>(),
                ::testing::AnyOf("confirmed", "high", "medium", "low"));
    EXPECT_FALSE(row.second["why"].as<std::string>().empty());
  }
  std::set<std::string> used = rows();
  std::erase_if(used, [](const std::string& row) { return row.front() != 'T'; });
  EXPECT_EQ(known, used);
}

TEST_F(BugList, HintsAtSignaturesOfTheVerdictPage) {
  const std::set<std::string> signatures = {"missing_reduction",
                                            "wrong_factor",
                                            "repeated_reduction",
                                            "repeated_bias",
                                            "missing_microbatch",
                                            "wrong_addends",
                                            "stale",
                                            "wrong_order",
                                            "localised",
                                            "replicas_diverge",
                                            "local_norm",
                                            "none"};
  for (const auto& bug : bugs_) {
    for (const auto& hint : alternatives(bug.text.at("hint"))) {
      EXPECT_THAT(signatures, Contains(hint)) << bug.text.at("name");
    }
  }
}

TEST_F(BugList, NeedsAndSetsOnlyWhatTheVocabularyExplains) {
  std::map<std::string, std::string> vocabulary;
  std::string ways;  // all texts of the vocabulary
  for (const auto& word : list_["vocabulary"]) {
    vocabulary[word.first.as<std::string>()] = word.second.as<std::string>();
    ways += word.second.as<std::string>() + "\n";
  }
  const std::set<std::string> grammar = {"and", "or", "not", "bf16"};
  for (std::size_t i = 0; i < bugs_.size(); ++i) {
    const auto& text = bugs_[i].text;
    SCOPED_TRACE(text.at("name"));
    for (const auto& word : matches_of(text.at("needs"), "[a-z][a-z0-9_]*")) {
      if (!grammar.contains(word)) {
        EXPECT_THAT(vocabulary, Contains(Key(word)));
      }
    }
    for (const auto& flag : matches_of(text.at("layout"), "--[a-z0-9-]+")) {
      EXPECT_THAT(ways, ::testing::ContainsRegex(flag + "[ ,]"));
    }
    for (const auto& change : list_["bugs"][i]["config"]) {
      EXPECT_THAT(ways, ::testing::HasSubstr(change.first.as<std::string>()));
    }
  }
}

TEST_F(BugList, FitsOnEightRanksAndTwoStepsInKnownPrecisions) {
  for (std::size_t i = 0; i < bugs_.size(); ++i) {
    const auto& text = bugs_[i].text;
    SCOPED_TRACE(text.at("name"));
    int ranks = 1;
    for (const auto& axis : matches_of(text.at("layout"), "--(tp|cp|dp|pp) [0-9]+")) {
      ranks *= std::stoi(axis.substr(axis.find(' ')));
    }
    EXPECT_LE(ranks, 8);
    EXPECT_THAT(text.at("steps"), ::testing::AnyOf("1", "2"));
    EXPECT_THAT(text.at("difficulty"), ::testing::AnyOf("obvious", "medium", "subtle"));
    const auto precisions = list_["bugs"][i]["precisions"].as<std::vector<std::string>>();
    EXPECT_THAT((std::set<std::string>{"bf16", "f32", "fp8"}), IsSupersetOf(precisions));
    EXPECT_FALSE(precisions.empty());
  }
}

// A source of the program, and its text.
struct Source {
  std::filesystem::path file;
  std::string text;
};

std::vector<Source> sources() {
  std::vector<Source> result;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MEGATRON_MINI_FOLDER)) {
    if (entry.path().extension() == ".cpp" || entry.path().extension() == ".h") {
      std::ifstream file(entry.path());
      result.push_back({entry.path(), std::string(std::istreambuf_iterator<char>(file), {})});
    }
  }
  return result;
}

// The sources in which a bug's name stands as a literal, once for each time.
std::vector<std::filesystem::path> sites_of(const std::string& name,
                                            const std::vector<Source>& sources) {
  std::vector<std::filesystem::path> sites;
  const std::string literal = "\"" + name + "\"";
  for (const auto& [file, text] : sources) {
    for (auto at = text.find(literal); at != std::string::npos; at = text.find(literal, at + 1)) {
      sites.push_back(file);
    }
  }
  return sites;
}

TEST_F(BugList, NamesBugsThatHaveOneSiteEachUnlessPending) {
  const std::vector<Source> all = sources();
  for (const auto& node : list_["bugs"]) {
    const auto name = node["name"].as<std::string>();
    const auto sites = sites_of(name, all);
    if (node["code"].IsDefined()) {
      EXPECT_EQ(node["code"].as<std::string>(), "pending") << name;
      EXPECT_THAT(sites, ::testing::IsEmpty()) << name;
      continue;
    }
    ASSERT_EQ(sites.size(), 1U) << name;
    EXPECT_EQ(sites[0].parent_path().filename(), "faults") << name;
    EXPECT_NO_THROW(static_cast<void>(megatron_mini::faults::parts_with_bug(name))) << name;
  }
}

// A reader of the layers, or of the training step, sees those of a correct program.
TEST_F(BugList, LeavesThePartsWithoutAWordOfBugs) {
  for (const auto& [file, text] : sources()) {
    if (file.parent_path() == std::filesystem::path(MEGATRON_MINI_FOLDER)) {
      EXPECT_THAT(matches_of(text, R"(\b([Bb]ug|[Mm]utant|[Ff]ault|[Ff]aulty|[Pp]lanted)s?\b)"),
                  ::testing::IsEmpty())
          << file;
    }
  }
}

// --- docs/bugs.md ------------------------------------------------------------------------------

std::string cell(const std::string& text) {
  return std::regex_replace(text, std::regex(R"(\|)"), R"(\|)");
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

void write_paper(std::ostream& page, const YAML::Node& list, const std::vector<ListedBug>& bugs) {
  page << "\n## The rows of the TTrace paper\n\n"
          "T01 to T14 are the bugs of the TTrace paper. The rows follow short descriptions of the "
          "paper's table, not the table\nitself, and which public bug a row stands for was "
          "inferred. Confirmed: another public list names that bug as one\nof the paper's. High: "
          "one public bug fits the description. Medium: it is the best of several. Low: none or "
          "several\nfit.\n\n"
          "| row | known | why | bugs |\n|---|---|---|---|\n";
  for (const auto& row : list["paper"]) {
    const auto id = row.first.as<std::string>();
    std::vector<std::string> names;
    for (const auto& bug : bugs) {
      if (std::find(bug.rows.begin(), bug.rows.end(), id) != bug.rows.end()) {
        names.push_back("`" + bug.text.at("name") + "`");
      }
    }
    page << "| " << id << " | " << row.second["known"].as<std::string>() << " | "
         << cell(row.second["why"].as<std::string>()) << " | " << joined(names) << " |\n";
  }
}

std::string expected_text(const ListedBug& bug) {
  const std::string text = "`" + cell(bug.text.at("expected")) + "`";
  return bug.redeclared.empty() ? text : text + "; " + cell(bug.redeclared);
}

std::string page_of(const YAML::Node& list, const std::vector<ListedBug>& bugs) {
  std::ostringstream page;
  page << "# Silent bugs\n\n"
       << bugs.size()
       << " silent bugs of `megatron_mini --bug NAME`, most of them found in public "
          "projects, each\n"
          "declared with the tensor where the first divergence must be before its code existed. A "
          "declaration that\nwas changed after the bug's first run says so. Step and micro-batch "
          "of the patterns were added on\n2026-11-23, after the runs. Made from\n"
          "[bugs.yaml](../examples/megatron_mini/bugs.yaml), which says more: where a bug sits, "
          "layout,\n"
          "precisions, the hint that a diagnosis should give, and which known bugs were not ported "
          "and why.\n"
          "`megatron_mini --list-bugs` prints those that the program has; the others are marked "
          "\"declared\".\n\n"
          "Made by `BUGS_PAGE=docs/bugs.md build/cpu/bin/megatron_mini_test\n"
          "--gtest_filter=BugList.*Page*`; the same test compares.\n";
  write_paper(page, list, bugs);
  for (const auto& chapter : list["chapters"]) {
    const auto id = chapter.first.as<std::string>();
    std::ostringstream table;
    int count = 0;
    for (const auto& bug : bugs) {
      const auto& text = bug.text;
      if (text.at("chapter") != id) {
        continue;
      }
      ++count;
      table << "| `" << text.at("name") << "`" << (bug.pending ? " (declared)" : "") << " | "
            << joined(bug.rows) << " | " << cell(text.at("what")) << " | "
            << cell(text.at("source")) << " | " << cell(text.at("needs")) << " | "
            << expected_text(bug) << " |\n";
    }
    page << "\n## " << id << " " << chapter.second.as<std::string>() << ": " << count
         << "\n\n| name | rows | what | source | needs | expected |\n|---|---|---|---|---|---|\n"
         << table.str();
  }
  return page.str();
}

TEST_F(BugList, IsWhatThePageShows) {
  const std::string page = page_of(list_, bugs_);
  if (const char* path = std::getenv("BUGS_PAGE")) {
    std::ofstream(path, std::ios::binary) << page;
  }
  std::ifstream file(MEGATRON_MINI_FOLDER "/../../docs/bugs.md", std::ios::binary);
  const std::string stored(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(stored, page);
}

}  // namespace
