#include "analysis/align/machine.h"
#include "analysis/align/matching.h"
#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/options/warn.h"
#include "analysis/findings/json_text.h"
#include "analysis/findings/text_columns.h"
#include "analysis/findings/wording.h"
#include "trace/file/trace_reader.h"

#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

struct Row {
  const Match* tensor = nullptr;
  std::string type;
  std::vector<std::int64_t> shape;  // logical
  std::vector<int> ranks;
  std::uint64_t bytes = 0;  // stored, on all ranks together
};

// If ranks contradict each other, ls shows the lowest one; `ttrace verify` reports the
// contradiction.
Row row_of(const Match& tensor) {
  const Record& first = *tensor.reference.front().record;
  Row row{&tensor, std::string(name_of(first.type)), first.placement.logical_shape(), {}, 0};
  for (const Shard& shard : tensor.reference) {
    row.ranks.push_back(shard.rank);
    row.bytes += shard.record->bytes;
  }
  return row;
}

std::vector<Row> selected(const std::vector<Match>& tensors, Selection& selection) {
  std::vector<Row> rows;
  for (const Match& tensor : tensors) {
    if (selection.wants(tensor.id, tensor.reference)) {
      rows.push_back(row_of(tensor));
    }
  }
  return rows;
}

// "0-3", "0, 2".
std::string rank_numbers(const std::vector<int>& ranks) {
  const std::string text = ranks_text(ranks);
  return text.substr(text.find(' ') + 1);
}

void print_text(const Trace& trace, const std::vector<Row>& rows, std::size_t left_out) {
  std::vector<std::vector<std::string>> lines{{"id", "type", "shape", "ranks", "bytes"}};
  std::uint64_t bytes = 0;
  for (const Row& row : rows) {
    lines.push_back({to_string(row.tensor->id),
                     row.type,
                     shape_text(row.shape),
                     rank_numbers(row.ranks),
                     std::to_string(row.bytes)});
    bytes += row.bytes;
  }
  write_columns(std::cout, lines, {.indent = 0, .numbers_last = true});
  std::cout << counted(rows.size(), "tensor") << ", " << counted(bytes, "byte");
  if (left_out > 0) {
    std::cout << "; the selection leaves out " << left_out;
  }
  std::cout << '\n';
  std::cout << machine_line(trace.manifest());
}

Json row_json(const Row& row) {
  const TensorId& id = row.tensor->id;
  return {{"id", to_string(id)},
          {"kind", name_of(id.kind)},
          {"order", row.tensor->order},
          {"type", row.type},
          {"shape", row.shape},
          {"ranks", row.ranks},
          {"bytes", row.bytes}};
}

void print_json(const Trace& trace, const std::vector<Row>& rows, std::size_t left_out) {
  std::cout << "{\"schema\":1,\n\"directory\":" << dump(trace.directory())
            << ",\n\"numerics\":" << dump(trace.manifest().numerics)
            << ",\n\"left_out\":" << left_out << ",\n\"tensors\":";
  write_json_list(std::cout, rows, row_json);
  std::cout << "}\n";
}

int run_ls(const po::variables_map& values) {
  const std::string folder = trace_folder_of(values, "ls");
  const ReportFormat format = format_of(values);
  Selection selection = selection_of(values);
  const Trace trace = Trace::open(folder);
  const std::vector<Match> tensors = tensors_of(trace);
  const std::vector<Row> rows = selected(tensors, selection);
  warn(selection.unused());
  const std::size_t left_out = tensors.size() - rows.size();
  if (format == ReportFormat::kJson) {
    print_json(trace, rows, left_out);
  } else {
    print_text(trace, rows, left_out);
  }
  return 0;
}

}  // namespace

Manual ls_manual() {
  po::options_description named("Options");
  add_selection_options(named);
  add_format_option(named);
  add_help_option(named);
  return {.name = "ls",
          .summary = "list the tensors of a trace",
          .synopses = {"TRACE [options]"},
          .description = {"Prints one line per tensor, in execution order: its id, element type "
                          "and logical shape, the ranks that recorded it, and the bytes that all "
                          "of them stored, and last what the machine did to numbers (TF32, "
                          "determinism and others). docs/trace_format.md explains ids and "
                          "settings."},
          .options = named,
          .run = run_ls,
          .exit_codes = {{"0", "the trace was read"},
                         {"2", "the trace could not be read, or bad usage"}},
          .examples = {{"ttrace ls runs/1/candidate --kinds main_grad",
                        "list the reduced gradients of the last check's candidate"}}};
}

}  // namespace ttrace::cli
