// The commands of the program, one per file of this folder: what each says about itself, and the
// function that runs it with its parsed options and returns the exit code. The functions throw
// UsageError and FormatError, and run_check() throws Interrupted.
#pragma once

#include "analysis/cli/options/manual.h"

#include <boost/program_options.hpp>

namespace ttrace::cli {

[[nodiscard]] Manual check_manual();
int run_check(const boost::program_options::variables_map& values);

[[nodiscard]] Manual gate_manual();
int run_gate(const boost::program_options::variables_map& values);

[[nodiscard]] Manual diff_manual();
int run_diff(const boost::program_options::variables_map& values);

[[nodiscard]] Manual explain_manual();
int run_explain(const boost::program_options::variables_map& values);

[[nodiscard]] Manual calibrate_manual();
int run_calibrate(const boost::program_options::variables_map& values);

[[nodiscard]] Manual import_manual();
int run_import(const boost::program_options::variables_map& values);

[[nodiscard]] Manual doctor_manual();
int run_doctor(const boost::program_options::variables_map& values);

[[nodiscard]] Manual zoom_manual();
int run_zoom(const boost::program_options::variables_map& values);

[[nodiscard]] Manual infer_manual();
int run_infer(const boost::program_options::variables_map& values);

[[nodiscard]] Manual ls_manual();
int run_ls(const boost::program_options::variables_map& values);

[[nodiscard]] Manual show_manual();
int run_show(const boost::program_options::variables_map& values);

[[nodiscard]] Manual verify_manual();
int run_verify(const boost::program_options::variables_map& values);

[[nodiscard]] Manual timeline_manual();
int run_timeline(const boost::program_options::variables_map& values);

[[nodiscard]] Manual merge_manual();
int run_merge(const boost::program_options::variables_map& values);

[[nodiscard]] Manual rename_manual();
int run_rename(const boost::program_options::variables_map& values);

}  // namespace ttrace::cli
