#include "analysis/reports/coverage_text.h"
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

struct Tally {
  std::size_t tests = 0;
  std::size_t failures = 0;
  std::size_t errors = 0;
  std::size_t skipped = 0;

  void operator+=(const Tally& other) {
    tests += other.tests;
    failures += other.failures;
    errors += other.errors;
    skipped += other.skipped;
  }
};

// Its module; what belongs to none is grouped by what it is.
std::string suite_of(const TensorId& id) {
  switch (id.kind) {
    case Kind::kData:
    case Kind::kScalar:
      return std::string(name_of(id.kind));
    case Kind::kCollectiveInput:
    case Kind::kCollectiveOutput:
      return "collectives";
    case Kind::kParam:
    case Kind::kParamGrad:
    case Kind::kMainGrad:
    case Kind::kMaster:
    case Kind::kParamNext:
    case Kind::kExpAvg:
    case Kind::kExpAvgSq:
    case Kind::kState:
    case Kind::kCopy:
    case Kind::kBuffer:
    case Kind::kStateBefore: {
      const std::string parameter = parameter_of(id);
      return parameter.substr(0, parameter.rfind('.'));
    }
    default:
      return id.path;
  }
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

void set(pugi::xml_node node, const Tally& tally) {
  set(node, "tests", std::to_string(tally.tests));
  set(node, "failures", std::to_string(tally.failures));
  set(node, "errors", std::to_string(tally.errors));
  set(node, "skipped", std::to_string(tally.skipped));
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

Tally write_suite(pugi::xml_node root,
                  const Report& report,
                  const Suite& suite,
                  const std::string& label) {
  pugi::xml_node node = root.append_child("testsuite");
  set(node, "name", suite.name);
  Tally tally;
  for (const std::size_t index : suite.tensors) {
    const TensorVerdict& tensor = report.tensors[index];
    pugi::xml_node test = append_test(node, labelled(label, to_string(tensor.id)), suite.name);
    ++tally.tests;
    if (tensor.is_finding()) {
      write_failure(test, report, index);
      ++tally.failures;
    } else if (const std::string reason = reason_to_skip(tensor); !reason.empty()) {
      set(test.append_child("skipped"), "message", reason);
      ++tally.skipped;
    } else if (tensor.origin() == BoundOrigin::kClassDefault) {
      const std::string weak = "weak bound: " + tensor.bound_source();
      test.append_child("system-out").text().set(valid(weak).c_str());
    }
  }
  set(node, tally);
  return tally;
}

// In properties of the first suite, because those of the whole are not in every reader's dialect.
void write_properties(pugi::xml_node suite, const Report& report) {
  if (!report.noise_coverage && report.not_seen.empty()) {
    return;
  }
  pugi::xml_node properties = suite.prepend_child("properties");
  const auto add = [&](const char* name, const std::string& value) {
    pugi::xml_node property = properties.append_child("property");
    set(property, "name", name);
    set(property, "value", value);
  };
  if (report.noise_coverage) {
    add("noise coverage", coverage_text(*report.noise_coverage));
  }
  for (const std::string& line : lines_of(report.not_seen)) {
    add("not seen", line);
  }
}

// Green must be a promise about the whole, as exit code 0 is.
Tally write_reservation(pugi::xml_node root, const Report& report, const std::string& label) {
  const std::string reserved = reservation(report);
  if (reserved.empty()) {
    return {};
  }
  const Tally tally{.tests = 1, .errors = 1};
  pugi::xml_node node = root.append_child("testsuite");
  set(node, "name", "ttrace");
  set(node, tally);
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
  return tally;
}

}  // namespace

void write_junit(std::ostream& out, const Report& report, const std::string& label) {
  pugi::xml_document document;
  pugi::xml_node declaration = document.append_child(pugi::node_declaration);
  set(declaration, "version", "1.0");
  set(declaration, "encoding", "UTF-8");
  pugi::xml_node root = document.append_child("testsuites");
  set(root, "name", labelled(label, "ttrace"));
  Tally all = write_reservation(root, report, label);
  for (const Suite& suite : suites_of(report)) {
    all += write_suite(root, report, suite, label);
  }
  write_properties(root.child("testsuite"), report);
  set(root, all);
  document.save(
      out, "  ", pugi::format_indent | pugi::format_skip_control_chars, pugi::encoding_utf8);
}

}  // namespace ttrace
