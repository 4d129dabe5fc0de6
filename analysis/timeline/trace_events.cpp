#include "analysis/timeline/trace_events.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

namespace ttrace {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

// nlohmann would write a double, whose last digits readers may cut off.
std::string microseconds(std::uint64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

}  // namespace

TraceEventWriter::TraceEventWriter(std::string file, const Json& facts)
    : file_(std::move(file)), out_(open_temporary(file_)) {
  buffer_ = "{\"displayTimeUnit\":\"ns\",\n\"otherData\":" + dump(facts) + ",\n\"traceEvents\":[";
}

TraceEventWriter::~TraceEventWriter() {
  if (!committed_) {
    std::error_code ignored;
    std::filesystem::remove(temporary_name(file_), ignored);
  }
}

std::int64_t TraceEventWriter::process(const std::string& name) {
  const std::int64_t number = ++last_number_;
  describe("process_name", {number, 0}, {{"name", name}});
  describe("process_sort_index", {number, 0}, {{"sort_index", number}});
  return number;
}

Track TraceEventWriter::track(std::int64_t process, const std::string& name) {
  const Track track{process, ++last_number_};
  describe("thread_name", track, {{"name", name}});
  describe("thread_sort_index", track, {{"sort_index", track.thread}});
  return track;
}

void TraceEventWriter::describe(const char* what, Track track, const Json& args) {
  Json event = {{"ph", "M"}, {"name", what}, {"pid", track.process}};
  if (track.thread != 0) {
    event["tid"] = track.thread;
  }
  event["args"] = args;
  buffer_ += std::exchange(has_events_, true) ? ",\n" : "\n";
  buffer_ += dump(event);
}

void TraceEventWriter::slice(const TraceEvent& event, std::uint64_t end) {
  TTRACE_CHECK(end >= event.begin, InternalError, event.name, " ends before it begins");
  add(event, fmt::format("\"ph\":\"X\",\"dur\":{}", microseconds(end - event.begin)));
}

void TraceEventWriter::instant(const TraceEvent& event) {
  add(event, "\"ph\":\"i\",\"s\":\"t\"");
}

void TraceEventWriter::add(const TraceEvent& event, std::string_view phase) {
  buffer_ += std::exchange(has_events_, true) ? ",\n" : "\n";
  buffer_ += fmt::format(R"({{{},"ts":{},"pid":{},"tid":{},"name":{},"cat":{},"args":{}}})",
                         phase,
                         microseconds(event.begin),
                         event.track.process,
                         event.track.thread,
                         dump(event.name),
                         dump(event.category),
                         dump(event.args));
  if (buffer_.size() >= kBufferBytes) {
    flush();
  }
}

void TraceEventWriter::flush() {
  TTRACE_CHECK(write_all(out_, std::as_bytes(std::span(buffer_))),
               FormatError,
               "cannot write ",
               file_,
               ": ",
               system_error_text(errno),
               "; free space there, or choose another file for -o");
  buffer_.clear();
}

void TraceEventWriter::commit() {
  buffer_ += "\n]}\n";
  flush();
  publish(file_, out_);
  committed_ = true;
}

}  // namespace ttrace
