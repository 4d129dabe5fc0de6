// The operators that ran inside the modules of a zoom pass, in the order in which they started.
//
// Every rank's file of the step holds the list as one record of kind `operators`, JSON text in
// bytes; what an operator returned are records of kind `operator` and `operator_grad`.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

inline constexpr std::string_view kOperatorsPath = "zoom";

struct OperatorCall {
  std::string name = {};    // "aten::mm", or the class of a function with a backward of its own
  std::string module = {};  // the innermost scope; in backward, of the forward operator
  // Where the program called it: "model.py:88". In backward, where it called the forward operator.
  // Empty where nobody could tell.
  std::string source = {};
  bool backward = false;
  bool recompute = false;
  bool communicates = false;                // sends data between ranks; its values are not recorded
  bool is_view = false;                     // returns memory that it was given
  bool is_function = false;                 // has no values; operators inside it have
  bool reads_outside = false;               // something that no operator of this list wrote
  std::optional<std::size_t> forward = {};  // in backward: position of the forward operator
  std::vector<std::size_t> made_by = {};    // positions of those that wrote what it read, ascending
  std::vector<TensorId> results = {};       // its records

  bool operator==(const OperatorCall&) const = default;
};

[[nodiscard]] std::string to_text(std::span<const OperatorCall> calls);
// Inverse of to_text(). Throws FormatError for any other text.
[[nodiscard]] std::vector<OperatorCall> parse_operator_calls(std::string_view text);

}  // namespace ttrace
