#include "analysis/align/compatibility.h"

#include "trace/file/manifest.h"
#include "trace/merge/routing.h"

#include <ttrace/error.h>

#include <set>
#include <utility>

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

// Of two programs only what both say of themselves can differ, and their classes have names of
// their own.
std::set<std::string> shared(std::set<std::string> keys,
                             const Section& reference,
                             const Section& candidate) {
  std::erase_if(keys, [&](const std::string& key) {
    return key == "class" || !reference.contains(key) || !candidate.contains(key);
  });
  return keys;
}

void require_equal(const std::string& name,
                   const Section& reference,
                   const Section& candidate,
                   bool renamed) {
  std::set<std::string> keys = differing_keys(reference, candidate);
  if (renamed) {
    keys = shared(std::move(keys), reference, candidate);
  }
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
                 " configuration",
                 reference.contains(key) && candidate.contains(key)
                     ? ""
                     : ", or say with --rename FILE which names of two different programs are the "
                       "same (docs/rename.md)");
  }
}

// What only one of two programs says of itself, so that nobody has compared it.
void add_unshared(const std::string& name,
                  const Section& reference,
                  const Section& candidate,
                  std::vector<std::string>& remarks) {
  std::string text;
  for (const std::string& key : differing_keys(reference, candidate)) {
    text += (text.empty() ? "" : ", ") + key + " " + value_of(reference, key) + " and " +
            value_of(candidate, key);
  }
  if (!text.empty()) {
    remarks.push_back("not compared of " + name +
                      ", because the two programs have different names, in the reference and in "
                      "the candidate: " +
                      text);
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
  const bool renamed = !r.names.empty() || !c.names.empty();
  require_equal("model", r.model, c.model, renamed);
  require_equal("data", r.data, c.data, renamed);
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
  if (renamed) {
    add_unshared("model", r.model, c.model, remarks);
    add_unshared("data", r.data, c.data, remarks);
  }
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
