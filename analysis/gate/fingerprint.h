// What a stored reference was made from, so that a gate notices when it is stale.
//
// STORE/NAME/made_from.json holds the command, the options, the commit and a digest of every file
// that the trusted program's results depend on. A reference is stale if one of these changed; of
// the commit only where the gate file lists `commit`.
//
// Thread-safety: plain values; the functions read files.
#pragma once

#include "analysis/gate/gate_file.h"
#include "trace/file/manifest.h"

#include <map>
#include <string>
#include <vector>

namespace ttrace {

struct Fingerprint {
  std::string command = {};
  GateOptions options = {};
  std::string commit = {};                        // empty outside of a git repository
  bool commit_counts = false;                     // of the program of now: it must be the same
  std::map<std::string, std::string> files = {};  // path -> XXH3-64, hexadecimal
};

// Of the files as they are now, relative to the working directory, whose repository is at `commit`.
// Throws UsageError for an entry of `made_from` that matches no file.
[[nodiscard]] Fingerprint fingerprint_of(const GateReference& reference, const std::string& commit);

// Sentences about what differs; empty if the reference still stands for the program.
[[nodiscard]] std::vector<std::string> differences(const Fingerprint& made, const Fingerprint& now);

void write_fingerprint(const std::string& file, const Fingerprint& fingerprint);
// Throws FormatError with path and remedy.
[[nodiscard]] Fingerprint read_fingerprint(const std::string& file);

// What of model, data and versions of libraries a stored reference and a run of today have in
// common and do not agree on. `may_differ`: names of libraries that are not asked.
[[nodiscard]] std::vector<std::string> differences(const Manifest& made,
                                                   const Manifest& now,
                                                   const std::vector<std::string>& may_differ);

}  // namespace ttrace
