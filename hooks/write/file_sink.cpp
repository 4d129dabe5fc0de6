#include "hooks/write/sink.h"
#include "trace/file/trace_writer.h"

#include <span>
#include <utility>

namespace ttrace {
namespace {

class FileSink : public Sink {
 public:
  FileSink(const Environment& environment, Layout layout)
      : directory_(environment.directory),
        options_{.named = environment.named,
                 .began = {},
                 .keeping = environment.keeping,
                 .run = environment.run},
        layout_(std::move(layout)) {}

  void begin_step(std::int64_t step, std::uint64_t began) override {
    options_.began = began;
    writer_ =
        std::make_unique<TraceWriter>(step_file(directory_, step, layout_.rank), layout_, options_);
  }
  void append(Record record, std::span<const std::byte> bytes) override {
    writer_->append(std::move(record), bytes);
  }
  void note(std::string remark) override { writer_->note(std::move(remark)); }
  void not_seen(NotSeen fact) override { writer_->not_seen(std::move(fact)); }
  void code(CodeRole role, const std::string& path, const std::string& text) override {
    writer_->code(role, path, text);
  }
  void sum(const RoundedSum& sum) override { writer_->sum(sum); }
  void edge(const Edge& edge) override { writer_->edge(edge); }
  void flush() override { writer_->flush(); }
  void end_step(bool whole) override {
    if (whole) {
      writer_->commit();
    }
    writer_.reset();
  }

 private:
  std::string directory_;
  TraceWriterOptions options_;
  Layout layout_;
  std::unique_ptr<TraceWriter> writer_;  // of the current step
};

}  // namespace

std::unique_ptr<Sink> make_file_sink(const Environment& environment, const Layout& layout) {
  return std::make_unique<FileSink>(environment, layout);
}

}  // namespace ttrace
