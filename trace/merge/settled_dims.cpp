#include "trace/merge/settled_dims.h"

#include <ttrace/dims.h>
#include <ttrace/error.h>

#include <nlohmann/json.hpp>

#include <fstream>
#include <utility>

namespace ttrace {
namespace {

constexpr const char* kFormat = "ttrace settled placements";

}  // namespace

std::optional<Placement> placed(const RankFile& file,
                                const Record& record,
                                const std::string& dims) {
  try {
    Placement placement = place(parse_dims(dims), record.shape, file.layout());
    placement.scale = record.placement.scale;
    return placement;
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

void place_settled(const SettledDims& settled, Trace& candidate) {
  for (RankFile& file : candidate.files()) {
    for (std::size_t i = 0; i < file.records().size(); ++i) {
      const Record& record = file.records()[i];
      const auto found = settled.find(record.id);
      if (found == settled.end() || !record.undeclared) {
        continue;
      }
      if (auto placement = placed(file, record, found->second)) {
        file.settle(i, *std::move(placement));
      }
    }
  }
}

std::string to_text(const SettledDims& settled) {
  nlohmann::ordered_json dims = nlohmann::ordered_json::object();
  for (const auto& [id, text] : settled) {
    dims[to_string(id)] = text;
  }
  return nlohmann::ordered_json{{"format", kFormat}, {"dims", std::move(dims)}}.dump(1) + "\n";
}

SettledDims read_settled_dims(const std::string& path) {
  try {
    std::ifstream file(path);
    TTRACE_CHECK(file, FormatError, path, ": the file cannot be opened");
    const nlohmann::json json = nlohmann::json::parse(file);
    TTRACE_CHECK(json.at("format") == kFormat,
                 FormatError,
                 path,
                 ": it holds no placements; `ttrace infer --settled` writes such a file");
    SettledDims settled;
    for (const auto& [id, dims] : json.at("dims").items()) {
      settled.emplace(parse_tensor_id(id), dims.get<std::string>());
    }
    return settled;
  } catch (const nlohmann::json::exception& error) {
    TTRACE_THROW(FormatError,
                 path + ": it holds no placements (" + error.what() +
                     "); `ttrace infer --settled` writes such a file");
  }
}

}  // namespace ttrace
