// How a stored reference was made, so that its program can run again.
//
// `ttrace check` leaves FOLDER/command.json next to the manifest of a reference that it ran: the
// command, the folder in which it ran, how many noise passes it asked for, how much memory it took,
// and those variables of its environment that say which program and libraries run and with how many
// threads. Others are not kept: they may be secrets.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ttrace::cli {

// `noise`: noise passes that the check makes of it; `memory`: bytes that it took. Throws
// FormatError where the file cannot be written.
void remember_command(const std::string& trace,
                      const std::string& command,
                      int noise = 0,
                      std::uint64_t memory = 0);

// A command for a shell that goes to the folder, sets the variables and runs the command. Nothing
// for a trace that check did not make, or whose folder is not there. Throws FormatError for a
// damaged file.
[[nodiscard]] std::optional<std::string> remembered_command(const std::string& trace);

// The number of noise passes that the check asked for which made the trace: one that failed early
// has not made them. 0 where nothing says it. Throws FormatError for a damaged file.
[[nodiscard]] int remembered_noise(const std::string& trace);

// Bytes that the program took; 0 where nothing says it. Throws FormatError for a damaged file.
[[nodiscard]] std::uint64_t remembered_memory(const std::string& trace);

}  // namespace ttrace::cli
