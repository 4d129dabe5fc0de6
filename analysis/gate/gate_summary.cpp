#include "analysis/gate/gate_summary.h"

#include "analysis/findings/json_text.h"
#include "analysis/findings/wording.h"
#include "analysis/reports/markdown_text.h"
#include "analysis/reports/page_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <pugixml.hpp>
#include <string_view>
#include <utility>

namespace ttrace {
namespace {

using Facts = std::vector<std::pair<std::string_view, std::string>>;

std::string html_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    result += c == '&'   ? "&amp;"
              : c == '<' ? "&lt;"
              : c == '>' ? "&gt;"
              : c == '"' ? "&quot;"
                         : std::string(1, c);
  }
  return result;
}

// What a reader needs to know of a layout that did not pass, or that was not seen as a whole.
Facts facts_of(const LayoutResult& result) {
  Facts facts;
  const auto add = [&](std::string_view name, const std::string& text) {
    if (!text.empty()) {
      facts.emplace_back(name, text);
    }
  };
  add("first divergence", result.first);
  add("probable cause", result.cause);
  add("operator", result.faulty);
  add("source", result.source);
  for (const std::string& problem : result.problems) {
    add("problem", problem);
  }
  for (const std::string& line : result.not_seen) {
    add("not seen", line);
  }
  return facts;
}

std::size_t count(const GateResult& result, Outcome outcome) {
  return static_cast<std::size_t>(
      std::ranges::count(result.layouts, outcome, &LayoutResult::outcome));
}

// "543 tensors, 151 findings, 12.3 s"
std::string numbers_of(const LayoutResult& result) {
  if (!was_compared(result)) {
    return "";
  }
  return fmt::format("{}, {}, {:.1f} s",
                     counted(result.tensors, "tensor"),
                     counted(result.findings, "finding"),
                     result.seconds);
}

std::string_view css_class(Outcome outcome) {
  return outcome == Outcome::kWithinBound ? "good"
         : outcome == Outcome::kDiverged  ? "bad"
                                          : "doubt";
}

void write_html_layout(std::ostream& out, const LayoutResult& result) {
  const std::string name = html_text(result.name);
  out << fmt::format("<section>\n<h2>{}: {}</h2>\n<dl>\n", name, name_of(result.outcome));
  Facts facts = facts_of(result);
  facts.emplace_back("command", result.command);
  facts.emplace_back("reference", result.reference);
  for (const auto& [title, text] : facts) {
    out << fmt::format("<dt>{}</dt><dd>{}</dd>\n", title, html_text(text));
  }
  out << "</dl>\n";
  if (was_compared(result)) {
    out << fmt::format("<p><a href=\"{0}.html\">Report</a>, <a href=\"{0}.txt\">text</a></p>\n",
                       name);
  }
  out << "</section>\n";
}

Json layout_json(const LayoutResult& result) {
  return {{"name", result.name},
          {"command", result.command},
          {"reference", result.reference},
          {"outcome", name_of(result.outcome)},
          {"seconds", result.seconds},
          {"tensors", result.tensors},
          {"findings", result.findings},
          {"first_divergence", result.first.empty() ? Json() : Json(result.first)},
          {"probable_cause", result.cause.empty() ? Json() : Json(result.cause)},
          {"operator", result.faulty.empty() ? Json() : Json(result.faulty)},
          {"source", result.source.empty() ? Json() : Json(result.source)},
          {"problems", result.problems},
          {"not_seen", result.not_seen}};
}

}  // namespace

int GateResult::exit_code() const {
  if (count(*this, Outcome::kDiverged) > 0) {
    return 1;
  }
  return problems.empty() && count(*this, Outcome::kWithinBound) == layouts.size() ? 0 : 2;
}

std::string GateResult::sentence() const {
  const std::size_t diverged = count(*this, Outcome::kDiverged);
  const std::size_t within = count(*this, Outcome::kWithinBound);
  const std::string all = counted(layouts.size(), "layout");
  if (diverged > 0) {
    return fmt::format("{} of {} diverged, {} within bound", diverged, all, within);
  }
  if (within < layouts.size()) {
    return fmt::format("{} of {} could not be judged", layouts.size() - within, all);
  }
  return problems.empty()
             ? fmt::format("all of {} within bound", all)
             : fmt::format("all of {} within bound, but the gate's file needs a change", all);
}

void write_layout(std::ostream& out, const LayoutResult& result, const std::string& folder) {
  const std::string numbers = numbers_of(result);
  out << fmt::format("{}: {}{}\n",
                     result.name,
                     name_of(result.outcome),
                     numbers.empty() ? "" : fmt::format(" ({})", numbers));
  for (const auto& [title, text] : facts_of(result)) {
    out << fmt::format("  {}: {}\n", title, text);
  }
  if (result.outcome == Outcome::kDiverged) {
    out << fmt::format("  report: {}/{}.txt\n", folder, result.name);
  }
}

void write_gate_markdown(std::ostream& out, const GateResult& result) {
  out << fmt::format("## TTrace gate: {}\n\n", markdown_text(result.sentence()));
  for (const std::string& problem : result.problems) {
    out << fmt::format("- {}\n", markdown_text(problem));
  }
  out << (result.problems.empty() ? "" : "\n")
      << "| layout | result | first divergence | source |\n|---|---|---|---|\n";
  for (const LayoutResult& layout : result.layouts) {
    out << fmt::format("| {} | {} | {} | {} |\n",
                       markdown_text(layout.name),
                       name_of(layout.outcome),
                       layout.first.empty() ? "" : fmt::format("`{}`", layout.first),
                       markdown_text(layout.source));
  }
  for (const LayoutResult& layout : result.layouts) {
    const Facts facts = facts_of(layout);
    if (facts.empty()) {
      continue;
    }
    out << fmt::format("\n### {}: {}\n\n", markdown_text(layout.name), name_of(layout.outcome));
    for (const auto& [title, text] : facts) {
      out << fmt::format("- **{}:** {}\n", title, markdown_text(text));
    }
    out << fmt::format("- **command:** {}\n", markdown_text(layout.command));
  }
}

void write_gate_html(std::ostream& out, const GateResult& result) {
  const int code = result.exit_code();
  out << "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'; img-src data:\">\n<title>TTrace gate</title>\n<link rel=\"icon\" "
         "href=\"data:,\">\n<style>\n"
      << kPageStyle << "</style>\n</head>\n<body>\n<main>\n"
      << fmt::format("<h1 class=\"{}\">{}</h1>\n",
                     code == 0   ? "good"
                     : code == 1 ? "bad"
                                 : "doubt",
                     html_text(result.sentence()));
  for (const std::string& problem : result.problems) {
    out << fmt::format("<p class=\"doubt\">{}</p>\n", html_text(problem));
  }
  out << "<table>\n<thead><tr><th>layout</th><th>result</th><th>tensors</th><th>first "
         "divergence</th><th>source</th></tr></thead>\n<tbody>\n";
  for (const LayoutResult& layout : result.layouts) {
    out << fmt::format(
        "<tr><td>{}</td><td "
        "class=\"{}\">{}</td><td>{}</td><td><code>{}</code></td><td>{}</td></tr>\n",
        html_text(layout.name),
        css_class(layout.outcome),
        name_of(layout.outcome),
        html_text(numbers_of(layout)),
        html_text(layout.first),
        html_text(layout.source));
  }
  out << "</tbody>\n</table>\n";
  for (const LayoutResult& layout : result.layouts) {
    write_html_layout(out, layout);
  }
  out << "</main>\n</body>\n</html>\n";
}

void write_gate_json(std::ostream& out, const GateResult& result) {
  out << dump({{"schema", 1},
               {"file", result.file},
               {"exit_code", result.exit_code()},
               {"sentence", result.sentence()},
               {"problems", result.problems},
               {"layouts", list_json(result.layouts, layout_json)}})
      << '\n';
}

void write_gate_junit(std::ostream& out, const LayoutResult& result) {
  const std::string why = result.problems.empty()
                              ? fmt::format("its reference is {}", result.reference)
                              : fmt::format("{}", fmt::join(result.problems, "; "));
  pugi::xml_document document;
  pugi::xml_node suites = document.append_child("testsuites");
  pugi::xml_node suite = suites.append_child("testsuite");
  for (pugi::xml_node node : {suites, suite}) {
    node.append_attribute("name") = result.name.c_str();
    node.append_attribute("tests") = 1;
    node.append_attribute("failures") = 0;
    node.append_attribute("errors") = 1;
    node.append_attribute("skipped") = 0;
  }
  pugi::xml_node test = suite.append_child("testcase");
  test.append_attribute("classname") = "gate";
  test.append_attribute("name") = fmt::format("{}: is compared", result.name).c_str();
  test.append_attribute("time") = fmt::format("{:.3f}", result.seconds).c_str();
  pugi::xml_node error = test.append_child("error");
  error.append_attribute("message") = fmt::format("{}: {}", name_of(result.outcome), why).c_str();
  document.save(out, "  ");
}

}  // namespace ttrace
