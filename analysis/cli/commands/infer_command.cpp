#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/options/stored_pair.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/options/warn.h"
#include "analysis/cli/run/progress.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/infer/annotation_file.h"
#include "analysis/infer/infer.h"
#include "analysis/infer/infer_report.h"
#include "analysis/infer/settle.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

po::options_description infer_options() {
  po::options_description named("Options");
  add_selection_options(named);
  add_format_option(named);
  add_threads_option(named);
  named.add_options()("max-report",
                      po::value<int>()->default_value(20)->value_name("N"),
                      "number of contradictions, and of unexplained tensors, to print");
  named.add_options()("output,o",
                      text_option("FILE"),
                      "write what was found to FILE as annotations; FILE is replaced only when all "
                      "of it is written");
  named.add_options()("settled",
                      text_option("FILE"),
                      "write to FILE where tensors lie of which nobody said it, as `ttrace diff` "
                      "uses them, for a forced pass (TTRACE_SETTLED), and do nothing else");
  add_help_option(named);
  return named;
}

Inference infer_pair(const StoredPair& pair, const po::variables_map& values) {
  ProgressLine progress;
  InferOptions options;
  options.threads = threads_of(values);
  options.selection = selection_of(values);
  options.progress = progress.counter("placing");
  Inference inference =
      infer(Trace::open(pair.reference), Trace::open(pair.candidate), std::move(options));
  progress.clear();
  warn(inference.warnings);
  return inference;
}

int run_infer(const po::variables_map& values) {
  const ReportFormat format = format_of(values);
  const auto max_rows = static_cast<std::size_t>(whole_number(values, "max-report", 0));
  const StoredPair pair = find_pair("infer", words_of(values));
  if (const auto settled = text_of(values, "settled")) {
    replace_file(*settled,
                 to_text(settled_dims(pair.reference, pair.candidate, threads_of(values))));
    return 0;
  }
  const Inference inference = infer_pair(pair, values);
  TTRACE_CHECK(!inference.tensors.empty(),
               UsageError,
               fmt::format("{} and {} have no tensor in common that could be placed; give two "
                           "traces of one model and one step, or a wider selection",
                           pair.reference,
                           pair.candidate));
  if (const auto output = text_of(values, "output")) {
    const AnnotationFile file = annotation_file(inference, pair.candidate);
    replace_file(*output, file.text);
    warn(file.warnings);
  }
  if (format == ReportFormat::kJson) {
    write_json(std::cout, inference);
  } else {
    write_text(std::cout, inference, max_rows);
  }
  return inference.contradictions.empty() ? 0 : 1;
}

}  // namespace

Manual infer_manual() {
  return {
      .name = "infer",
      .summary = "find out where tensors lie and which declarations are wrong",
      .synopses = {"REFERENCE CANDIDATE [options]", "RUN [options]"},
      .description =
          {"Compares every rank's part of every tensor with the reference's tensor. The values "
           "show how the tensor is cut (contiguous, strided, zig-zag, over several axes, padded), "
           "over which axes its addends must be summed, and where the flat ranges of a distributed "
           "optimizer begin. The search ignores declared placements. It compares them with its "
           "result and reports those that the bytes contradict.",
           "A constant tensor agrees with many placements, so tensors whose paths are equal up to "
           "numbers vote together. RUN is a folder made by ttrace check. A Python program records "
           "a trace without declarations by attach(..., placements=\"none\")."},
      .options = infer_options(),
      .run = run_infer,
      .exit_codes = {{"0", "no declared placement contradicts the bytes"},
                     {"1", "the bytes contradict at least one declared placement"},
                     {"2",
                      "the traces could not be read, they have no tensor in common, or bad usage"}},
      .examples = {{"ttrace infer runs/1", "check the declared placements of the last check"},
                   {"ttrace infer REF CAND -o gpt.ttrace.yaml",
                    "write an annotation file for a program that has none"}}};
}

}  // namespace ttrace::cli
