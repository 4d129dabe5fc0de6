// A file of trace events in JSON, which ui.perfetto.dev, Perfetto's trace processor and
// chrome://tracing read: the "Trace Event Format" of Chrome, its JSON object format.
//
// Events go to the file as they come. The file appears under its name only when it is whole.
// Thread-safety: one thread at a time.
#pragma once

#include "analysis/findings/json_text.h"
#include "trace/base/durable_file.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace ttrace {

// A track: a thread of a process.
struct Track {
  std::int64_t process = 0;
  std::int64_t thread = 0;
};

// Times are nanoseconds since the timeline begins; the file holds microseconds with three decimals.
struct TraceEvent {
  Track track = {};
  std::string name = {};
  std::string category = {};  // several separated by commas
  std::uint64_t begin = 0;
  Json args = Json::object();
};

class TraceEventWriter {
 public:
  // Throws FormatError if the file cannot be made. `facts`: what the file says of itself.
  TraceEventWriter(std::string file, const Json& facts);
  ~TraceEventWriter();                                 // without commit() nothing is left
  TraceEventWriter(const TraceEventWriter&) = delete;  // owns an open file
  TraceEventWriter& operator=(const TraceEventWriter&) = delete;

  // Processes and their threads are shown in the order in which they are made. No number is used
  // twice, because some readers take equal numbers of threads in two processes for one.
  [[nodiscard]] std::int64_t process(const std::string& name);
  [[nodiscard]] Track track(std::int64_t process, const std::string& name);

  // Throw FormatError. Requires: end >= event.begin.
  void slice(const TraceEvent& event, std::uint64_t end);
  void instant(const TraceEvent& event);

  // Gives the file its name. Throws FormatError; then nothing has it.
  void commit();

 private:
  void add(const TraceEvent& event, std::string_view phase);
  void describe(const char* what, Track track, const Json& args);
  void flush();

  std::string file_;
  FileDescriptor out_;
  std::string buffer_;
  std::int64_t last_number_ = 0;
  bool has_events_ = false;
  bool committed_ = false;
};

}  // namespace ttrace
