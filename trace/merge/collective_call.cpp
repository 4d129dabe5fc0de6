#include <ttrace/collective_call.h>
#include <ttrace/error.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace ttrace {
namespace {

constexpr std::array<std::string_view, 5> kOperations = {
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"};
constexpr std::array<std::string_view, 3> kReductions = {"sum", "max", "average"};

template <class Enum, std::size_t n>
Enum parse_word(const std::array<std::string_view, n>& words, const std::string& word) {
  const auto found = std::find(words.begin(), words.end(), word);
  TTRACE_CHECK(found != words.end(),
               FormatError,
               "\"",
               word,
               "\" names no collective operation or reduction");
  return static_cast<Enum>(found - words.begin());
}

template <class Enum, std::size_t n>
std::string word_of(const std::array<std::string_view, n>& words, Enum value) {
  return std::string(words.at(static_cast<std::size_t>(value)));
}

bool reduces(CollectiveOperation operation) {
  return operation == CollectiveOperation::kAllReduce ||
         operation == CollectiveOperation::kReduceScatter;
}

}  // namespace

std::string description_of(const CollectiveCall& call) {
  std::string text = word_of(kOperations, call.operation);
  std::replace(text.begin(), text.end(), '_', '-');
  return reduces(call.operation) ? text + " (" + word_of(kReductions, call.reduction) + ")" : text;
}

std::string to_text(const CollectiveCall& call) {
  nlohmann::ordered_json json = {{"operation", word_of(kOperations, call.operation)},
                                 {"reduction", word_of(kReductions, call.reduction)},
                                 {"rank", call.rank},
                                 {"size", call.size},
                                 {"root", call.root},
                                 {"rows_sent", call.rows_sent},
                                 {"rows_received", call.rows_received},
                                 {"module", call.module}};
  return json.dump();
}

CollectiveCall parse_collective_call(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    CollectiveCall call;
    call.operation = parse_word<CollectiveOperation>(kOperations, json.at("operation"));
    call.reduction = parse_word<CollectiveReduction>(kReductions, json.at("reduction"));
    call.rank = json.at("rank");
    call.size = json.at("size");
    call.root = json.at("root");
    call.rows_sent = json.at("rows_sent").get<std::vector<std::int64_t>>();
    call.rows_received = json.at("rows_received").get<std::vector<std::int64_t>>();
    call.module = json.at("module");
    return call;
  } catch (const nlohmann::json::exception& error) {
    TTRACE_THROW(FormatError, "\"", text, "\" does not describe a collective: ", error.what());
  }
}

}  // namespace ttrace
