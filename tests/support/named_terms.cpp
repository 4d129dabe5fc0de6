#include "support/named_terms.h"

#include <cmath>
#include <regex>
#include <vector>

namespace ttrace::testing {
namespace {

using Json = nlohmann::json;

constexpr double kSame = 1e-3;  // relative: coefficients are printed with four digits

// All first groups of `pattern` in `text`, one after another.
std::vector<std::string> groups_of(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    found.push_back((*match)[1].str());
  }
  return found;
}

const std::string kNumber = R"([-+]?[0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?)";

std::set<std::string> axes_of(const std::string& sentence) {
  // "tp rank 1" is a place, not an axis that something is wrong with.
  static const std::regex axis(R"(\b(tp|cp|dp|pp|ep|etp|edp|kv|sp)\b(?! rank))");
  const auto found = groups_of(sentence, axis);
  return {found.begin(), found.end()};
}

// "0, 2-4" -> 0, 2, 3, 4
void add_ranks(const std::string& list, std::set<int>& ranks) {
  static const std::regex range(R"(([0-9]+)(?:-([0-9]+))?)");
  for (std::sregex_iterator match(list.begin(), list.end(), range), end; match != end; ++match) {
    const int first = std::stoi((*match)[1].str());
    const int last = (*match)[2].matched ? std::stoi((*match)[2].str()) : first;
    for (int rank = first; rank <= last; ++rank) {
      ranks.insert(rank);
    }
  }
}

std::set<int> ranks_named_in(const std::string& sentence) {
  static const std::regex right(
      R"(\branks? [0-9]+(?:-[0-9]+)?(?:, [0-9]+(?:-[0-9]+)?)*(?: ha(?:s|ve) it)? as it is)");
  // "(tp rank 1)" is the place of a rank that is named already.
  static const std::regex list(R"(\branks? ([0-9]+(?:-[0-9]+)?(?:, [0-9]+(?:-[0-9]+)?)*))");
  static const std::regex axis_rank(
      R"(\((?:(?:tp|cp|dp|pp|ep|etp|edp|kv|sp) rank [0-9]+(?:, )?)+\))");
  std::string text = std::regex_replace(sentence, right, "");
  text = std::regex_replace(text, axis_rank, "");
  std::set<int> ranks;
  for (const std::string& each : groups_of(text, list)) {
    add_ranks(each, ranks);
  }
  return ranks;
}

// The coefficient of the addends that do not count once, if they agree.
std::optional<double> common_coefficient(const std::string& sentence) {
  static const std::regex list("it is ((?:" + kNumber + "(?:, )?)+) ");
  static const std::regex each("(" + kNumber + ")");
  const auto lists = groups_of(sentence, list);
  if (lists.empty()) {
    return std::nullopt;
  }
  std::optional<double> common;
  for (const std::string& text : groups_of(lists.front(), each)) {
    const double value = std::stod(text);
    if (std::abs(value - 1.0) <= kSame) {
      continue;
    }
    if (common && std::abs(value - *common) > kSame) {
      return std::nullopt;
    }
    common = value;
  }
  return common;
}

std::optional<double> factor_of(const std::string& sentence) {
  if (sentence.find("(it is not in the sum)") != std::string::npos) {
    return 0.0;
  }
  for (const char* before : {"it counts ", "a = ", "have the coefficient ", "candidate = "}) {
    const auto found = groups_of(sentence, std::regex(before + ("(" + kNumber + ")")));
    if (!found.empty()) {
      return std::stod(found.front());
    }
  }
  return common_coefficient(sentence);
}

}  // namespace

NamedTerms terms_of_sentence(const std::string& sentence) {
  return {
      .axes = axes_of(sentence), .factor = factor_of(sentence), .ranks = ranks_named_in(sentence)};
}

NamedTerms named_terms(const Json& report) {
  const auto diagnoses = report.find("diagnoses");
  if (diagnoses == report.end() || diagnoses->empty()) {
    return {};
  }
  const Json& first = diagnoses->front();
  if (const auto named = first.find("named"); named != first.end() && named->is_object()) {
    const Json factor = named->value("factor", Json());
    return {.axes = named->value("axes", std::set<std::string>{}),
            .factor = factor.is_number() ? std::optional(factor.get<double>()) : std::nullopt,
            .ranks = named->value("ranks", std::set<int>{})};
  }
  const Json sentence = first.value("probable_cause", Json());
  return sentence.is_string() ? terms_of_sentence(sentence.get<std::string>()) : NamedTerms{};
}

}  // namespace ttrace::testing
