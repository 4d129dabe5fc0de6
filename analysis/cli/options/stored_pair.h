// The two stored traces that a check judges, and `diff` and `explain` again: a reference and a
// candidate, or the folder of a check with all that it holds.
//
// Thread-safety: plain values and free functions without shared state.
#pragma once

#include "analysis/diff.h"
#include "analysis/findings/report.h"
#include "analysis/rename/rename_map.h"

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>

#include <optional>
#include <string>
#include <vector>

namespace ttrace::cli {

struct StoredPair {
  std::string reference;
  std::string candidate;
  std::string run = {};                  // folder made by check; empty: two traces were given
  std::optional<RenameMap> rename = {};  // the reference has other names than the candidate
};

// Reads one folder or two. Throws UsageError that names the command if there are more or fewer
// folders, or if check did not make the only one.
[[nodiscard]] StoredPair find_pair(const std::string& command,
                                   const std::vector<std::string>& folders);

// --rename, for two traces.
void add_rename_option(boost::program_options::options_description& named);
// Reads --rename into `pair`. Throws UsageError, also if the only folder was made by check, because
// its traces already have the same names.
void read_rename_option(const boost::program_options::variables_map& values, StoredPair& pair);

// The forced passes of a folder made by check; nothing if it does not have them.
[[nodiscard]] std::optional<ForcedTraces> forced_traces(const std::string& run);

// Whether the traces must be complete or may come from an interrupted run.
enum class Completeness { kWhole, kPartial };

// Compares the pair, with the forced and golden passes of the run if it has them. Warns on stderr
// of options that applied to nothing. Throws UsageError or FormatError where no comparison is
// possible.
[[nodiscard]] Report judge(const StoredPair& pair, DiffOptions options, Completeness completeness);

// --partial, and what it asks for.
void add_partial_option(boost::program_options::options_description& named);
[[nodiscard]] Completeness completeness_of(const boost::program_options::variables_map& values);

}  // namespace ttrace::cli
