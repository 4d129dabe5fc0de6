#include "analysis/align/compatibility.h"

#include "analysis/align/differing_keys.h"
#include "analysis/align/machine.h"
#include "trace/file/manifest.h"
#include "trace/merge/draws.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace ttrace {
namespace {

// "`128`" or "absent".
std::string value_of(const Section& section, const std::string& key) {
  const auto found = section.find(key);
  return found == section.end() ? "absent" : "`" + found->second + "`";
}

// Of the model; that of a second implementation has another name.
const std::string kClass = "class";

// The keys that must be equal and are not. Two different programs, one of which was renamed, can
// differ only in keys that both state.
std::set<std::string> clashing(const Section& reference, const Section& candidate, bool renamed) {
  std::set<std::string> keys = differing_keys(reference, candidate);
  std::erase_if(keys, [&](const std::string& key) {
    const bool have_both = reference.contains(key) && candidate.contains(key);
    return (renamed && !have_both) || (key == kClass && (renamed || have_both));
  });
  return keys;
}

void require_equal(const std::string& name,
                   const Section& reference,
                   const Section& candidate,
                   bool renamed) {
  const std::set<std::string> keys = clashing(reference, candidate, renamed);
  if (!keys.empty()) {
    const std::string& key = *keys.begin();
    const bool have_both = reference.contains(key) && candidate.contains(key);
    TTRACE_THROW(UsageError,
                 fmt::format("the {0} key `{1}` is {2} in the reference and {3} in the candidate; "
                             "run both with the same {0} configuration{4}",
                             name,
                             key,
                             value_of(reference, key),
                             value_of(candidate, key),
                             have_both ? ""
                                       : ", or pair the names of two different programs with "
                                         "--rename FILE (docs/rename.md)"));
  }
}

// Lists the keys that only one of the two programs states, because nobody has compared them.
void add_unshared(const std::string& name,
                  const Section& reference,
                  const Section& candidate,
                  std::vector<std::string>& remarks) {
  std::string text;
  for (const std::string& key : differing_keys(reference, candidate)) {
    if (key == kClass) {
      continue;
    }
    text += fmt::format("{}{} {} and {}",
                        text.empty() ? "" : ", ",
                        key,
                        value_of(reference, key),
                        value_of(candidate, key));
  }
  if (!text.empty()) {
    remarks.push_back(
        fmt::format("these {} keys were not compared, because only one of the two programs has "
                    "them (reference and candidate): {}",
                    name,
                    text));
  }
}

void add_classes(const Section& reference,
                 const Section& candidate,
                 std::vector<std::string>& remarks) {
  if (differing_keys(reference, candidate).contains(kClass)) {
    remarks.push_back(
        fmt::format("the model's class is {} in the reference and {} in the candidate",
                    value_of(reference, kClass),
                    value_of(candidate, kClass)));
  }
}

// What kinds of traces the two are, where that is not what a check makes.
void add_origins(const Manifest& reference, bool imported, std::vector<std::string>& remarks) {
  if (imported) {
    remarks.push_back(
        "files of other tools do not say which model and data they are of, so these were not "
        "compared");
  }
  if (reference.pass != "reference" && reference.pass != kImportedPass) {
    remarks.push_back(
        fmt::format("a pass of kind `{}` wrote the trace that is given as the reference; are "
                    "reference and candidate swapped?",
                    reference.pass));
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

void require_followed(const Trace& reference, const Trace& candidate) {
  const std::string& followed = reference.manifest().forced_routing;
  TTRACE_CHECK(followed.empty() || followed == digest_of_choices(candidate),
               UsageError,
               fmt::format("the reference {} used the choices of another candidate than {}; run it "
                           "again with TTRACE_CANDIDATE set to this candidate, or give a reference "
                           "that chose for itself",
                           reference.directory(),
                           candidate.directory()));
}

std::vector<std::string> check_comparable(const Trace& reference,
                                          const Trace& candidate,
                                          const Selection& selection) {
  const Manifest& r = reference.manifest();
  const Manifest& c = candidate.manifest();
  const bool renamed = !r.names.empty() || !c.names.empty();
  const bool imported = r.pass == kImportedPass || c.pass == kImportedPass;
  if (!imported) {
    require_equal("model", r.model, c.model, renamed);
    require_equal("data", r.data, c.data, renamed);
  }
  if (steps_of(reference, selection) != steps_of(candidate, selection)) {
    TTRACE_THROW(UsageError,
                 fmt::format("the reference holds steps {}, but the candidate holds {}; trace both "
                             "with the same TTRACE_STEPS, or select common steps with --steps",
                             steps_of(reference, selection),
                             steps_of(candidate, selection)));
  }

  require_same_products(r, c);

  std::vector<std::string> remarks;
  if (renamed) {
    add_unshared("model", r.model, c.model, remarks);
    add_unshared("data", r.data, c.data, remarks);
  }
  if (!imported) {
    add_classes(r.model, c.model, remarks);
  }
  add_origins(r, imported, remarks);
  if (r.precision != c.precision) {
    remarks.push_back(fmt::format(
        "the precision is {} in the reference and {} in the candidate", r.precision, c.precision));
  }
  for (const std::string& key : differing_keys(r.versions, c.versions)) {
    if (!r.versions.contains(key) || !c.versions.contains(key)) {
      continue;  // a program's own version; the two sides are two programs
    }
    remarks.push_back(
        fmt::format("the version of {} is {} in the reference and {} in the candidate",
                    key,
                    value_of(r.versions, key),
                    value_of(c.versions, key)));
  }
  std::ranges::move(machine_remarks(r, c), std::back_inserter(remarks));
  return remarks;
}

}  // namespace ttrace
