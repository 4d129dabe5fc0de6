#include "hooks/write/sink.h"
#include "trace/file/capture_counts.h"
#include "trace/file/trace_writer.h"
#include "trace/sums/sketch.h"

#include <ttrace/log.h>

namespace ttrace {
namespace {

class CountSink : public Sink {
 public:
  CountSink(const Environment& environment, const Layout& layout, const TensorCount& start)
      : directory_(environment.directory),
        keeping_(environment.keeping),
        last_step_(environment.last_step - 1) {
    counts_.rank = layout.rank;
    counts_.world_size = layout.world_size;
    counts_.start = start;
  }

  void begin_step(std::int64_t step, std::uint64_t /*began*/) override {
    step_ = step;
    counts_.steps[step];
  }
  // Of its values, which nobody has copied, only their number matters.
  void append(Record record, std::span<const std::byte> /*bytes*/) override {
    const bool is_sketched = kept_of(record, keeping_) == Keep::kSketch;
    counts_.steps[step_][record.id.kind] +=
        {1,
         is_sketched
             ? stored_size(sketch_grid(record.placement.logical_shape()), record.type)
             : static_cast<std::uint64_t>(element_count(record.shape)) * element_size(record.type)};
  }
  void note(std::string remark) override { log(LogLevel::kDebug, remark); }
  void flush() override {}
  void end_step(bool whole) override {
    if (whole && step_ == last_step_) {
      write_counts(directory_, counts_);
    }
  }

 private:
  std::string directory_;
  Keeping keeping_;
  std::int64_t last_step_;
  std::int64_t step_ = 0;
  CaptureCounts counts_;
};

}  // namespace

std::unique_ptr<Sink> make_count_sink(const Environment& environment,
                                      const Layout& layout,
                                      const TensorCount& start) {
  return std::make_unique<CountSink>(environment, layout, start);
}

}  // namespace ttrace
