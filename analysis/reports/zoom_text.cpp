#include "analysis/reports/zoom_text.h"

#include "analysis/findings/wording.h"
#include "analysis/reports/finding_text.h"

#include <fmt/core.h>

#include <ostream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

std::string at(const NamedOperator& named) {
  return named.source.empty() ? "" : " at " + named.source;
}

// "aten::mm (backward) at model.py:88"
std::string short_text(const NamedOperator& named) {
  return named.name + (named.backward ? " (backward)" : "") + at(named);
}

const char* fault_text(OperatorFault fault) {
  switch (fault) {
    case OperatorFault::kResult:
      return "its result differs from the reference's";
    case OperatorFault::kOnlyInCandidate:
      return "only the candidate runs it";
    case OperatorFault::kOnlyInReference:
      return "only the reference runs it";
    case OperatorFault::kCommunication:
      return "this communication returns something else than what its inputs add up to";
  }
  return "";
}

void write_list(std::ostream& out, const char* head, const std::vector<NamedOperator>& list) {
  const char* separator = "";
  if (list.empty()) {
    return;
  }
  out << "  " << head << ": ";
  for (const NamedOperator& named : list) {
    out << separator << short_text(named);
    separator = ", ";
  }
  out << '\n';
}

void write_first(std::ostream& out, const ZoomReport& zoom) {
  const NamedOperator& first = *zoom.first;
  out << fmt::format("first operator that round-off does not explain: {}{}{}\n",
                     first.name,
                     first.module.empty() ? "" : " in " + first.module,
                     first.backward ? ", in backward" : "");
  out << "  source: "
      << (first.source.empty() ? "unknown; the program does not report where it calls operators"
                               : first.source)
      << (first.backward && !first.source.empty() ? " (the forward operator or its backward)" : "")
      << '\n';
  out << "  fault: " << fault_text(zoom.fault) << '\n';
  if (zoom.result && zoom.result != zoom.first) {
    out << fmt::format("  first wrong result: {}, {}\n", short_text(*zoom.result), zoom.id);
  } else if (!zoom.id.empty()) {
    out << "  result: " << zoom.id << '\n';
  }
  const char* head = "what";
  for (const std::string& sentence : zoom.what) {
    out << fmt::format("  {}: {}\n", head, sentence);
    head = "also";
  }
  if (zoom.diagnosis) {
    write_diagnosis(out, "  ", *zoom.diagnosis);
  }
}

void write_inputs(std::ostream& out, const ZoomReport& zoom) {
  write_list(out, "it reads right results of", zoom.clean_inputs);
  write_list(out, "it reads wrong results of", zoom.wrong_inputs);
  if (zoom.reads_outside) {
    out << "  it also reads tensors that no operator of the module made (parameters, inputs)\n";
  }
}

}  // namespace

void write_zoom(std::ostream& out, const ZoomReport& zoom) {
  out << fmt::format("\nzoom into {}\n", zoom.target);
  if (zoom.first) {
    write_first(out, zoom);
    write_inputs(out, zoom);
  } else {
    out << zoom.problem << '\n';
  }
  write_list(out, "only the reference runs", zoom.only_reference);
  write_list(out, "only the candidate runs", zoom.only_candidate);
  if (zoom.reference_operators > 0) {
    out << fmt::format("  {} of the reference, {} of the candidate; {} compared ({})\n",
                       counted(zoom.reference_operators, "operator"),
                       zoom.candidate_operators,
                       counted(zoom.compared, "result"),
                       zoom.folder);
  }
}

}  // namespace ttrace
