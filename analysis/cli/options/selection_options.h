// The options that select the tensors of a command (analysis/align/selection.h) and decide how it
// judges them (analysis/bounds/tolerance.h).
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/selection.h"
#include "analysis/diff.h"

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>

#include <string>
#include <vector>

namespace ttrace::cli {

// `kRunSteps`: the command has its own --steps, which selects what is traced.
enum class StepsOption { kSelects, kRunSteps };

// --filter, --exclude, --steps, --kinds, --ranks
void add_selection_options(boost::program_options::options_description& named,
                           StepsOption steps = StepsOption::kSelects);
// --steps and --ranks alone, for a command that shows all that ranks recorded.
void add_range_options(boost::program_options::options_description& named);
// Of the options that the command has. Throws UsageError that names the option, its value and the
// nearest valid word.
[[nodiscard]] Selection selection_of(const boost::program_options::variables_map& values,
                                     StepsOption steps = StepsOption::kSelects);

// --rtol, --atol, --allow-missing, --allow-failed, --calibration, --require
void add_judging_options(boost::program_options::options_description& named);
// Throws UsageError, and FormatError where a calibration cannot be read.
void read_judging_options(const boost::program_options::variables_map& values,
                          DiffOptions& options);

// --require alone, for a command that hands it on; words_to_require throws UsageError that names
// the nearest word.
void add_require_option(boost::program_options::options_description& named);
[[nodiscard]] std::vector<std::string> words_to_require(
    const boost::program_options::variables_map& values);

// --without, rows of the ledger of limits (analysis/bounds/ledger.h) that are switched off.
void add_ledger_option(boost::program_options::options_description& named);
// Throws UsageError that names the nearest rows.
[[nodiscard]] Allowances allowances_of(const boost::program_options::variables_map& values);

}  // namespace ttrace::cli
