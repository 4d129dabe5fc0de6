#include <ttrace/collective_call.h>
#include <ttrace/error.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace ttrace {
namespace {

template <class Enum>
using Word = std::pair<Enum, std::string_view>;

constexpr auto kOperations = std::to_array<Word<CollectiveOperation>>({
    {CollectiveOperation::kAllReduce, "all_reduce"},
    {CollectiveOperation::kReduceScatter, "reduce_scatter"},
    {CollectiveOperation::kAllGather, "all_gather"},
    {CollectiveOperation::kAllToAll, "all_to_all"},
    {CollectiveOperation::kBroadcast, "broadcast"},
});
constexpr auto kReductions = std::to_array<Word<CollectiveReduction>>({
    {CollectiveReduction::kSum, "sum"},
    {CollectiveReduction::kMax, "max"},
    {CollectiveReduction::kAverage, "average"},
});

template <class Enum, std::size_t n>
Enum parse_word(const std::array<Word<Enum>, n>& words, const std::string& word) {
  const auto found = std::ranges::find(words, word, &Word<Enum>::second);
  TTRACE_CHECK(found != words.end(),
               FormatError,
               "\"",
               word,
               "\" names no collective operation or reduction");
  return found->first;
}

template <class Enum, std::size_t n>
std::string word_of(const std::array<Word<Enum>, n>& words, Enum value) {
  const auto found = std::ranges::find(words, value, &Word<Enum>::first);
  TTRACE_CHECK(
      found != words.end(), InternalError, "a collective operation or reduction has no name");
  return std::string(found->second);
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
    call.operation = parse_word(kOperations, json.at("operation"));
    call.reduction = parse_word(kReductions, json.at("reduction"));
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
