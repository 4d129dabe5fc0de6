#include "analysis/reports/facts.h"
#include "analysis/reports/finding_text.h"
#include "analysis/reports/report_writers.h"
#include "analysis/reports/tensor_json.h"
#include "trace/base/state_path.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <pugixml.hpp>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// A module and what was recorded of it; indices into Report::tensors.
struct Suite {
  std::string name;
  std::vector<std::size_t> tensors;
};

// Its module; what belongs to none is grouped by what it is.
std::string suite_of(const TensorId& id) {
  if (is_collective(id.kind)) {
    return "collectives";
  }
  if (id.kind == Kind::kData || id.kind == Kind::kScalar) {
    return std::string(name_of(id.kind));
  }
  const std::string path = parameter_of(id);
  const bool has_module = is_of_parameter(id.kind) || id.kind == Kind::kBuffer;
  return has_module ? path.substr(0, path.rfind('.')) : path;
}

// The modules in the reference's order, except that the module of the first divergence comes first:
// readers show the first failure first.
std::vector<Suite> suites_of(const Report& report) {
  std::vector<Suite> suites;
  std::map<std::string, std::size_t> positions;
  for (std::size_t i = 0; i < report.tensors.size(); ++i) {
    const std::string name = suite_of(report.tensors[i].id);
    const auto [found, is_new] = positions.emplace(name, suites.size());
    if (is_new) {
      suites.push_back({name, {}});
    }
    suites[found->second].tensors.push_back(i);
  }
  if (report.diverged()) {
    const auto first = suites.begin() + static_cast<std::ptrdiff_t>(positions.at(
                                            suite_of(report.tensors[*report.first_divergence].id)));
    std::rotate(suites.begin(), first, first + 1);
  }
  return suites;
}

// Foreign bytes of paths are replaced; control characters are left out when the file is written.
std::string valid(const std::string& text) {
  return Json::parse(dump(text)).get<std::string>();
}

void set(pugi::xml_node node, const char* name, const std::string& value) {
  node.append_attribute(name).set_value(valid(value).c_str());
}

// Of the tests inside.
void set_counts(pugi::xml_node node) {
  set(node, "tests", std::to_string(node.select_nodes(".//testcase").size()));
  set(node, "failures", std::to_string(node.select_nodes(".//failure").size()));
  set(node, "errors", std::to_string(node.select_nodes(".//error").size()));
  set(node, "skipped", std::to_string(node.select_nodes(".//skipped").size()));
  set(node, "time", "0");  // some readers demand one
}

void write_failure(pugi::xml_node test, const Report& report, std::size_t index) {
  const TensorVerdict& tensor = report.tensors[index];
  const std::string body = lines_of(facts_of_finding(report, index));
  pugi::xml_node failure = test.append_child("failure");
  set(failure, "type", std::string(name_of(tensor.symptom())));
  set(failure, "message", finding_line(report, index));
  failure.text().set(valid(body).c_str());
}

// Why a tensor neither passes nor fails; empty if it passes or fails.
std::string reason_to_skip(const TensorVerdict& tensor) {
  if (tensor.allowed()) {
    return "allowed: " + short_cause(tensor);
  }
  switch (tensor.status()) {
    case Status::kInherited:
      return "inherited: it differs more than round-off explains, but its own operators are right";
    case Status::kBehindFlip:
      return "not judged: it differs, but depends on tokens that go to other experts";
    case Status::kIncomplete:
      return "not judged: the step was interrupted before it was complete";
    case Status::kNotJudged:
      return fmt::format("not judged: {}", tensor.why_not_judged());
    default:
      return "";
  }
}

pugi::xml_node append_test(pugi::xml_node suite,
                           const std::string& name,
                           const std::string& module) {
  pugi::xml_node test = suite.append_child("testcase");
  set(test, "name", name);
  set(test, "classname", module);
  set(test, "time", "0");
  return test;
}

// "tp2-dp2: s0/m0/output/head/0"
std::string labelled(const std::string& label, const std::string& name) {
  return label.empty() ? name : label + ": " + name;
}

void write_suite(pugi::xml_node root,
                 const Report& report,
                 const Suite& suite,
                 const std::string& label) {
  pugi::xml_node node = root.append_child("testsuite");
  set(node, "name", suite.name);
  for (const std::size_t index : suite.tensors) {
    const TensorVerdict& tensor = report.tensors[index];
    pugi::xml_node test = append_test(node, labelled(label, to_string(tensor.id)), suite.name);
    if (tensor.is_finding()) {
      write_failure(test, report, index);
    } else if (const std::string reason = reason_to_skip(tensor); !reason.empty()) {
      set(test.append_child("skipped"), "message", reason);
    } else if (tensor.origin() == BoundOrigin::kClassDefault) {
      const std::string weak = "weak bound: " + tensor.bound_source();
      test.append_child("system-out").text().set(valid(weak).c_str());
    }
  }
  set_counts(node);
}

// In properties of the first suite, because those of the whole are not in every reader's dialect.
// No paths: a report of the same runs in another folder is the same.
void write_properties(pugi::xml_node suite, const Report& report) {
  pugi::xml_node properties = suite.prepend_child("properties");
  const auto add = [&](std::string_view name, const std::string& value) {
    pugi::xml_node property = properties.append_child("property");
    set(property, "name", std::string(name));
    set(property, "value", value);
  };
  for (const Fact& fact : facts_of_run(report)) {
    if (fact.depth == Depth::kDetail) {
      add(fact.label, fact.text);
    }
  }
  for (const std::string& line : lines_of(report.not_seen)) {
    add("not seen", line);
  }
}

// Green must be a promise about the whole, as exit code 0 is.
void write_reservation(pugi::xml_node root, const Report& report, const std::string& label) {
  const std::string reserved = reservation(report);
  if (reserved.empty()) {
    return;
  }
  pugi::xml_node node = root.append_child("testsuite");
  set(node, "name", "ttrace");
  pugi::xml_node error =
      append_test(node, labelled(label, "whole trace is judged"), "ttrace").append_child("error");
  set(error,
      "type",
      report.partial()                  ? "partial"
      : report.why_not_judged().empty() ? "undecided"
                                        : "not_judged");
  set(error, "message", reserved);
  std::string body;
  for (const std::vector<std::string>* sentences : {&report.lacking, &report.unmet}) {
    for (const std::string& sentence : *sentences) {
      body += sentence + '\n';
    }
  }
  error.text().set(valid(body).c_str());
  set_counts(node);
}

}  // namespace

void write_junit(std::ostream& out, const Report& report, const std::string& label) {
  pugi::xml_document document;
  pugi::xml_node declaration = document.append_child(pugi::node_declaration);
  set(declaration, "version", "1.0");
  set(declaration, "encoding", "UTF-8");
  pugi::xml_node root = document.append_child("testsuites");
  set(root, "name", labelled(label, "ttrace"));
  write_reservation(root, report, label);
  for (const Suite& suite : suites_of(report)) {
    write_suite(root, report, suite, label);
  }
  write_properties(root.child("testsuite"), report);
  set_counts(root);
  document.save(
      out, "  ", pugi::format_indent | pugi::format_skip_control_chars, pugi::encoding_utf8);
}

}  // namespace ttrace
