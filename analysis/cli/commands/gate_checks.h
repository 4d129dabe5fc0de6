// The checks that a gate runs: those that make stored references, and those of its layouts.
//
// OUTPUT gets, for every layout NAME: NAME/ (traces and logs), NAME.txt (what the check printed),
// NAME.err, NAME.html, NAME.md, junit/NAME.xml and sarif/NAME.sarif. STORE/NAME is the folder of a
// reference: reference/ is the trace, made_from.json its fingerprint.
//
// Thread-safety: main thread only.
#pragma once

#include "analysis/cli/run/side_by_side.h"
#include "analysis/gate/fingerprint.h"
#include "analysis/gate/gate_file.h"
#include "analysis/gate/layout_result.h"

#include <cstdint>
#include <map>
#include <string>

namespace ttrace::cli {

// Throws UsageError that names the reference or layout whose options `ttrace check` refuses.
void require_valid_options(const GateFile& file);

[[nodiscard]] std::string folder_of(const GateFile& file, const GateReference& reference);
[[nodiscard]] bool is_stored(const GateFile& file, const GateReference& reference);

// Compares the reference with itself in STORE/NAME.new; keep_reference() lets it become STORE/NAME.
[[nodiscard]] Task making(const GateFile& file,
                          const GateReference& reference,
                          const std::string& output);
void keep_reference(const GateFile& file,
                    const GateReference& reference,
                    const Fingerprint& fingerprint);

[[nodiscard]] Task checking(const GateFile& file,
                            const GateLayout& layout,
                            const std::string& output);

// What the end of a layout's check means.
[[nodiscard]] LayoutResult result_of(const GateFile& file,
                                     const GateLayout& layout,
                                     const std::string& output,
                                     const TaskEnd& end);

// The sentence of an error that a check wrote to this file; all of it where there is none.
[[nodiscard]] std::string error_in(const std::string& file);

// The most memory that each layout took so far, STORE/memory.json; empty where there is none.
[[nodiscard]] std::map<std::string, std::uint64_t> read_memory(const GateFile& file);
void write_memory(const GateFile& file, const std::map<std::string, std::uint64_t>& memory);

}  // namespace ttrace::cli
