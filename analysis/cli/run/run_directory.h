// The folder of one check: DIR/reference, DIR/candidate, DIR/logs/*.log and DIR/report.{txt,json};
// DIR/forced-wide and DIR/forced-native, where the reference runs with the candidate's values;
// DIR/golden, the reference in FP64; and DIR/rerouted, if the reference had to reuse the
// candidate's choices of experts. If the two programs have different names (--rename), all of these
// have the candidate's names, and DIR/reference-names holds the same traces as the reference's
// program reads and writes them.
//
// Thread-safety: plain values; create one folder per run.
#pragma once

#include <cstdint>
#include <string>

namespace ttrace::cli {

// The folder of the reference that reused the candidate's choices of experts.
[[nodiscard]] std::string rerouted_reference(const std::string& run);
// The file with the placements of what nobody declared, for forced passes.
[[nodiscard]] std::string settled_placements(const std::string& run);
// The folders of the forced passes: in a higher precision, and in the candidate's own.
[[nodiscard]] std::string forced_wide(const std::string& run);
[[nodiscard]] std::string forced_native(const std::string& run);
// The folder of the reference in FP64.
[[nodiscard]] std::string golden_pass(const std::string& run);

// Folder with traces in the reference's names.
[[nodiscard]] std::string reference_names(const std::string& run);

// Replaces a file in one go. Throws FormatError with path and cause.
void replace_file(const std::string& path, const std::string& text);

class RunDirectory {
 public:
  // Makes the folder this check's own. `path` empty: runs/N with the next free number. Throws
  // UsageError if `path` already holds something, another check took it, or it cannot be made.
  static RunDirectory create(const std::string& path);

  // Only names it: a later run of jobs makes it. Throws UsageError for an empty `path`.
  static RunDirectory planned(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string reference() const { return path_ + "/reference"; }
  [[nodiscard]] std::string candidate() const { return path_ + "/candidate"; }
  [[nodiscard]] std::string rerouted() const { return rerouted_reference(path_); }
  // `pass` is "reference", "noise-1", "candidate".
  [[nodiscard]] std::string log(const std::string& pass) const {
    return path_ + "/logs/" + pass + ".log";
  }

  // Lets `folder` of this one be a stored trace elsewhere, by a relative link. Throws UsageError.
  void use_stored(const std::string& folder, const std::string& trace) const;

  // Replaces a file of this folder, as replace_file().
  void write(const std::string& name, const std::string& text) const;

  // Bytes of all files, those of a stored reference not included.
  [[nodiscard]] std::uintmax_t size() const;

 private:
  explicit RunDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Whether `path` looks like a folder made by check, with both traces inside.
[[nodiscard]] bool is_run_directory(const std::string& path);

}  // namespace ttrace::cli
