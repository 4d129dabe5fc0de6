// A folder for what a command needs only while it runs.
//
// Thread-safety: one thread at a time.
#pragma once

#include <string>

namespace ttrace::cli {

class TemporaryFolder {
 public:
  // "ttrace-NAME-..." where temporary files go. Throws UsageError.
  explicit TemporaryFolder(const std::string& name);
  ~TemporaryFolder();                                // removes it with all that it holds
  TemporaryFolder(const TemporaryFolder&) = delete;  // removes once
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  // Whether the folder stays, because it holds the log of a failure.
  void keep(bool kept) { kept_ = kept; }

 private:
  std::string path_;
  bool kept_ = false;
};

}  // namespace ttrace::cli
