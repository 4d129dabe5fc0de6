#include "analysis/compatibility.h"

#include <ttrace/error.h>
#include <ttrace/manifest.h>
#include <ttrace/routing.h>

#include <set>

namespace ttrace {
namespace {

// "`128`" or "absent".
std::string value_of(const Section& section, const std::string& key) {
  const auto found = section.find(key);
  return found == section.end() ? "absent" : "`" + found->second + "`";
}

std::set<std::string> differing_keys(const Section& reference, const Section& candidate) {
  std::set<std::string> keys;
  for (const Section* section : {&reference, &candidate}) {
    for (const auto& [key, value] : *section) {
      if (value_of(reference, key) != value_of(candidate, key)) {
        keys.insert(key);
      }
    }
  }
  return keys;
}

void require_equal(const std::string& name, const Section& reference, const Section& candidate) {
  const std::set<std::string> keys = differing_keys(reference, candidate);
  if (!keys.empty()) {
    const std::string& key = *keys.begin();
    TTRACE_THROW(UsageError,
                 name,
                 " key `",
                 key,
                 "` is ",
                 value_of(reference, key),
                 " in the reference and ",
                 value_of(candidate, key),
                 " in the candidate; run both with the same ",
                 name,
                 " configuration");
  }
}

std::string steps_of(const Trace& trace, const Selection& selection) {
  std::string text;
  for (const StepTrace& step : trace.steps()) {
    if (selection.wants_step(step.step)) {
      text += (text.empty() ? "" : ", ") + std::to_string(step.step);
    }
  }
  return text.empty() ? "none" : text;
}

}  // namespace

std::vector<std::string> check_comparable(const Trace& reference,
                                          const Trace& candidate,
                                          const Selection& selection) {
  const Manifest& r = reference.manifest();
  const Manifest& c = candidate.manifest();
  require_equal("model", r.model, c.model);
  require_equal("data", r.data, c.data);
  if (steps_of(reference, selection) != steps_of(candidate, selection)) {
    TTRACE_THROW(UsageError,
                 "the reference holds steps ",
                 steps_of(reference, selection),
                 ", the candidate ",
                 steps_of(candidate, selection),
                 "; trace both with the same TTRACE_STEPS, or select common ones with --steps");
  }

  if (!r.forced_routing.empty()) {
    TTRACE_CHECK(r.forced_routing == digest_of(read_routing(candidate)),
                 UsageError,
                 "the reference ",
                 reference.directory(),
                 " followed the choices of experts of another candidate than ",
                 candidate.directory(),
                 "; run it again with TTRACE_CANDIDATE set to that one, or take a reference that "
                 "chose its own experts");
  }

  std::vector<std::string> remarks;
  if (r.pass != "reference") {
    remarks.push_back("the trace given as reference was written by a pass of kind `" + r.pass +
                      "`; are the two swapped?");
  }
  if (r.precision != c.precision) {
    remarks.push_back("precision is " + r.precision + " in the reference and " + c.precision +
                      " in the candidate");
  }
  for (const std::string& key : differing_keys(r.versions, c.versions)) {
    if (!r.versions.contains(key) || !c.versions.contains(key)) {
      continue;  // a program's own version; the two sides are two programs
    }
    remarks.push_back("version of " + key + " is " + value_of(r.versions, key) +
                      " in the reference and " + value_of(c.versions, key) + " in the candidate");
  }
  return remarks;
}

}  // namespace ttrace
