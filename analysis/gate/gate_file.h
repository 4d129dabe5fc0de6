// The file of `ttrace gate`: trusted programs, the layouts that must agree with them, and what may
// differ, why, and until when.
//
//   store: ttrace-reference          # folder of the stored references
//   references:
//     small:
//       command: python reference.py --config small.yaml
//       made_from: [reference.py, small.yaml, data]   # files, folders, patterns, or `commit`
//       check: {noise: 5}            # options of the check that makes it
//   check: {no-forced: false}        # options of all layouts
//   layouts:
//     tp2-dp2: torchrun --nproc-per-node 4 train.py --tp 2 --config small.yaml
//     pp2: {command: torchrun ..., reference: small, check: {rename: map.yaml}}
//     tp8-dp8: {command: python train.py --tp 8, world: simulated, ranks: 64}
//   allow:
//     - {failed: "main_grad/.*router", layouts: [tp2-dp2], reason: "issue 7", expires: 2027-03-01}
//
// Thread-safety: plain values.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace ttrace {

// Options of `ttrace check` with their values; one without values is a switch.
using GateOptions = std::map<std::string, std::vector<std::string>>;

struct GateReference {
  std::string name = {};
  std::string command = {};
  // Files that its results depend on; empty: those that its command names. See fingerprint.h.
  std::vector<std::string> made_from = {};
  std::vector<std::string> may_differ = {};  // libraries whose version the candidates may choose
  GateOptions options = {};
};

struct GateLayout {
  std::string name = {};
  std::string command = {};
  std::string reference = {};
  GateOptions options = {};
  bool is_simulated =
      false;  // one process simulates all ranks, whose number it finds in TTRACE_SIMULATE
};

struct GatePermission {
  bool missing = false;      // a missing tensor, not one that is out of bound
  std::string pattern = {};  // regular expression, found in the id
  std::vector<std::string> layouts = {};
  std::string reason = {};
  std::chrono::year_month_day expires = {};  // the last day
  std::string place = {};                    // "gate.yaml:17"

  // "--allow-failed", "--allow-missing"
  [[nodiscard]] std::string option() const;
  [[nodiscard]] bool concerns(const std::string& layout) const;
};

struct GateFile {
  std::string store;
  std::vector<GateReference> references;
  std::vector<GateLayout> layouts;
  std::vector<GatePermission> permissions;

  [[nodiscard]] const GateReference& reference_of(const GateLayout& layout) const;
};

// Throws UsageError that names file, line and remedy.
[[nodiscard]] GateFile load_gate_file(const std::string& path);

// Sentences about permissions that are over on the day `today`.
[[nodiscard]] std::vector<std::string> expired(const GateFile& file,
                                               std::chrono::year_month_day today);

}  // namespace ttrace
