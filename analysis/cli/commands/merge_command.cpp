#include "analysis/align/matching.h"
#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/options/warn.h"
#include "analysis/cli/run/merged_writer.h"
#include "analysis/cli/run/progress.h"
#include "analysis/findings/wording.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

struct Outcome {
  std::size_t written = 0;
  std::size_t defective = 0;
  std::size_t left_out = 0;
  std::size_t sketches = 0;
};

Outcome write_tensors(const std::vector<Match>& tensors,
                      Selection& selection,
                      MergedWriter& writer,
                      ProgressLine& progress) {
  Outcome outcome;
  for (const Match& tensor : tensors) {
    if (!selection.wants(tensor.id, tensor.reference)) {
      ++outcome.left_out;
      continue;
    }
    const MergeResult merged = merge(tensor.reference);
    for (const MergeFinding& finding : merged.findings) {
      progress.clear();
      std::cout << to_string(tensor.id) << ": " << name_of(finding.defect) << ": "
                << finding.message << '\n';
    }
    if (merged.sketch) {
      ++outcome.sketches;
    } else if (merged.findings.empty()) {
      writer.append(tensor.id, merged);
      ++outcome.written;
    } else {
      ++outcome.defective;
    }
    progress.show_rarely("merged " + std::to_string(outcome.written) + " of " +
                         std::to_string(tensors.size()));
  }
  progress.clear();
  return outcome;
}

int run_merge(const po::variables_map& values) {
  const std::string folder = trace_folder_of(values, "merge");
  const auto file = text_of(values, "output");
  TTRACE_CHECK(
      file,
      UsageError,
      "merge does not know where to write; pass -o FILE.h5, -o FILE.safetensors or -o FOLDER/");
  Selection selection = selection_of(values);
  const Trace trace = Trace::open(folder);
  const auto writer = merged_writer(*file, trace.manifest());
  ProgressLine progress;
  const Outcome outcome = write_tensors(tensors_of(trace), selection, *writer, progress);
  warn(selection.unused());
  TTRACE_CHECK(outcome.sketches == 0,
               UsageError,
               fmt::format("{} keeps sketches of {}, and none of their elements; trace with "
                           "TTRACE_KEEP=bytes",
                           folder,
                           counted(outcome.sketches, "tensor")));
  TTRACE_CHECK(outcome.written + outcome.defective > 0,
               UsageError,
               fmt::format("the selection leaves out all {} tensors; `ttrace ls` lists their ids",
                           outcome.left_out));
  writer->commit();
  std::cout << counted(outcome.written, "tensor") << " written to " << *file;
  if (outcome.defective > 0) {
    std::cout << "; " << outcome.defective
              << " left out, because their parts contradict each other";
  }
  if (outcome.left_out > 0) {
    std::cout << "; the selection leaves out " << outcome.left_out;
  }
  std::cout << '\n';
  return outcome.defective == 0 ? 0 : 1;
}

}  // namespace

Manual merge_manual() {
  po::options_description named("Options");
  named.add_options()("output,o",
                      text_option("FILE|FOLDER/"),
                      "what to write, by its ending: FILE.h5, FILE.safetensors, or FOLDER/ for one "
                      ".npy file per tensor");
  add_selection_options(named);
  add_help_option(named);
  return {
      .name = "merge",
      .summary = "write the logical tensors of a trace for other tools: HDF5, safetensors, npy",
      .synopses = {"TRACE -o FILE.h5 [options]",
                   "TRACE -o FILE.safetensors [options]",
                   "TRACE -o FOLDER/ [options]"},
      .description =
          {"Merges the ranks' parts as a comparison does, and writes every tensor under its id: as "
           "a dataset of HDF5, as a tensor of a safetensors file, or as FOLDER/ID.npy, where BF16, "
           "F16 and FP8 become F32, which holds all their values. If the parts of a tensor "
           "contradict each other, the command names the tensor and leaves it out."},
      .options = named,
      .run = run_merge,
      .exit_codes =
          {{"0", "all selected tensors are in the file"},
           {"1", "tensors were left out, because their parts contradict each other"},
           {"2", "nothing was written: the trace is unreadable, the file exists, or bad usage"}},
      .examples = {{"ttrace merge runs/1/candidate -o grads.h5 --kinds main_grad",
                    "read gradients in a notebook: h5py.File('grads.h5')['s0/main_grad/...']"},
                   {"ttrace merge runs/1/candidate -o weights.safetensors --kinds param",
                    "hand the parameters to another tool"}}};
}

}  // namespace ttrace::cli
