// Writes a trace in the names and arrangements of the other program.
//
// Thread-safety: one thread at a time.
#pragma once

#include "analysis/rename/rename_noise.h"
#include "analysis/rename/rename_options.h"
#include "analysis/rename/rename_plan.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"
#include "trace/merge/merge.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

class Renaming {
 public:
  // Writes below the folder `target`. Keeps references. `total`: tensors that will be written, for
  // progress.
  Renaming(std::string target,
           const RenameMap& map,
           const RenameOptions& options,
           std::size_t total);

  // All tensors of one file to be, in execution order.
  void write(std::span<Conversion> conversions, TraceWriter& writer);
  void write_edges(const StepTrace& step, TraceWriter& writer) const;
  // Requires: the conversions have been written.
  void write_noise(const NoisePass& pass, std::span<const Conversion> conversions) const;

  [[nodiscard]] std::size_t tensors() const { return tensors_; }  // written
  // What was left out since the last call.
  [[nodiscard]] std::vector<std::string> take_notes();
  void note(std::string text);

 private:
  void write_one(Conversion& conversion, TraceWriter& writer);
  [[nodiscard]] std::vector<MergeResult> converted(const Conversion& conversion,
                                                   std::vector<MergeResult> sources) const;
  void add_noise(const Conversion& conversion,
                 std::vector<ShapedNoise> sources,
                 NoisePass& renamed) const;

  std::string target_;
  const RenameMap& map_;
  const RenameOptions& options_;
  Names from_;
  std::size_t done_ = 0;
  std::size_t total_ = 0;
  std::size_t tensors_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace ttrace
