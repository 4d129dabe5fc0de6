#include "analysis/reports/explain.h"
#include "analysis/reports/page_parts.h"
#include "analysis/reports/report_writers.h"
#include "analysis/reports/tensor_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {
namespace {

constexpr std::size_t kMostExplained = 400;
constexpr std::size_t kMostNotes = 100;

// Three significant digits are what the page shows; the report in JSON has all.
Json page_number(double value) {
  return std::isfinite(value) ? Json(std::stod(fmt::format("{:.3g}", value))) : number_json(value);
}

// A column for each of what the table shows, because a page of 100,000 objects is slow to read.
Json columns_json(const Report& report) {
  Json columns = Json::object();
  for (const char* name :
       {"id", "path", "kind", "status", "symptom", "finding", "share", "error", "norm", "bound"}) {
    columns[name] = Json::array();
  }
  for (const TensorVerdict& tensor : report.tensors) {
    const bool has_share = is_judged(tensor.status()) && !tensor.allowed();
    const auto compared = [&](double value) {
      return tensor.comparison ? page_number(value) : Json();
    };
    const Comparison comparison = tensor.comparison.value_or(Comparison());
    columns["id"].push_back(to_string(tensor.id));
    columns["path"].push_back(tensor.id.path);
    columns["kind"].push_back(name_of(tensor.id.kind));
    columns["status"].push_back(name_of(tensor.status()));
    columns["symptom"].push_back(name_of(tensor.symptom()));
    columns["finding"].push_back(tensor.is_finding() ? 1 : 0);
    columns["share"].push_back(has_share ? page_number(tensor.largest_share()) : Json());
    columns["error"].push_back(compared(comparison.error));
    columns["norm"].push_back(compared(comparison.reference_norm));
    columns["bound"].push_back(compared(tensor.bound()));
  }
  return columns;
}

// Findings first, then what is nearest to its bound.
std::vector<std::size_t> worth_explaining(const Report& report) {
  std::vector<std::size_t> tensors(report.tensors.size());
  std::iota(tensors.begin(), tensors.end(), std::size_t{0});
  std::ranges::stable_sort(tensors, [&](std::size_t left, std::size_t right) {
    const TensorVerdict& a = report.tensors[left];
    const TensorVerdict& b = report.tensors[right];
    return a.is_finding() != b.is_finding()
               ? a.is_finding()
               : !a.is_finding() && a.largest_share() > b.largest_share();
  });
  tensors.resize(std::min(tensors.size(), kMostExplained));
  return tensors;
}

Json explained_json(const Report& report) {
  Json explained = Json::object();
  for (const std::size_t index : worth_explaining(report)) {
    std::ostringstream text;
    write_text(text, explain(report, index));
    explained[std::to_string(index)] = text.str();
  }
  return explained;
}

std::string data_of(const Report& report) {
  Json page = Json::object();
  page["report"] = header_json(report);
  for (const char* list : {"notes", "not_seen"}) {
    Json& sentences = page["report"][list];
    if (sentences.size() > kMostNotes) {
      sentences.erase(sentences.begin() + kMostNotes, sentences.end());
    }
  }
  page["run"] = report.reference.directory + " " + report.candidate.directory;
  page["tensors"] = columns_json(report);
  page["explained"] = explained_json(report);
  std::string text = dump(page);
  // Text must not end the element that holds it.
  for (std::size_t at = text.find("</"); at != std::string::npos; at = text.find("</", at)) {
    text.replace(at, 2, "<\\/");
  }
  return text;
}

}  // namespace

void write_html(std::ostream& out, const Report& report) {
  const std::string data = data_of(report);
  const std::map<std::string_view, std::string_view> parts = {
      {"@TTRACE_PAGE_CSS@", kPageStyle},
      {"@TTRACE_PAGE_DATA@", data},
      {"@TTRACE_PAGE_CHARTS@", kPageCharts},
      {"@TTRACE_PAGE_JS@", kPageScript},
      {"@TTRACE_PAGE_DRAWINGS@", kPageDrawings},
  };
  std::string_view rest = kPage;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    const auto part = parts.find(line.substr(0, line.size() - 1));
    if (part != parts.end()) {
      out << part->second << '\n';
    } else {
      out << line;
    }
    rest.remove_prefix(end);
  }
}

}  // namespace ttrace
