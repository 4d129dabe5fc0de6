#include "analysis/findings/json_text.h"
#include "analysis/infer/infer_report.h"

#include <ostream>

namespace ttrace {
namespace {

Json class_json(const InferredClass& found) {
  return {{"pattern", found.tensors.pattern},
          {"field", found.tensors.field},
          {"slot", found.tensors.slot},
          {"dims", found.election.dims},
          {"votes", found.election.votes},
          {"members", found.election.members},
          {"tied", found.election.tied}};
}

Json placements_json(const std::vector<Placement>& placements) {
  return list_json(placements, [](const Placement& placement) { return to_string(placement); });
}

Json inferred_json(const InferredTensor& tensor) {
  return {{"id", to_string(tensor.id)},
          {"pattern", tensor.tensors.pattern},
          {"field", tensor.tensors.field},
          {"slot", tensor.tensors.slot},
          {"ranks", tensor.ranks},
          {"told_by", name_of(tensor.source)},
          {"dims", tensor.dims},
          {"inferred", placements_json(tensor.placements)},
          {"declared", placements_json(tensor.declared)},
          {"agrees", tensor.agrees},
          {"contradicted", tensor.contradicted},
          {"error", number_json(tensor.error)},
          {"declared_error", number_json(tensor.declared_error)},
          {"remark", tensor.remark}};
}

Json contradiction_json(const Inference& inference, const Contradiction& contradiction) {
  const Json ids = list_json(contradiction.members, [&](std::size_t member) {
    return to_string(inference.tensors[member].id);
  });
  const InferredTensor& first = inference.tensors[contradiction.members.front()];
  return {{"pattern", contradiction.tensors.pattern},
          {"field", contradiction.tensors.field},
          {"slot", contradiction.tensors.slot},
          {"declared", contradiction.declared},
          {"inferred", contradiction.inferred},
          {"ranks", first.ranks},
          {"error", number_json(first.error)},
          {"declared_error", number_json(first.declared_error)},
          {"ids", ids}};
}

}  // namespace

void write_json(std::ostream& out, const Inference& inference) {
  out << "{\"schema\":1,\n\"declares\":" << (inference.declares ? "true" : "false")
      << ",\n\"counts\":";
  Json counts = {{"tensors", inference.tensors.size()}};
  for (const Source source :
       {Source::kSizes, Source::kBytes, Source::kVote, Source::kSimplest, Source::kNone}) {
    counts[std::string(name_of(source))] = inference.count(source);
  }
  counts["agreeing"] = inference.agreeing();
  counts["by_rows"] = inference.by_rows;
  counts["one_sided"] = inference.one_sided;
  out << dump(counts) << ",\n\"classes\":";
  write_json_list(out, inference.classes, class_json);
  out << ",\n\"contradictions\":";
  write_json_list(out, inference.contradictions, [&](const Contradiction& contradiction) {
    return contradiction_json(inference, contradiction);
  });
  out << ",\n\"tensors\":";
  write_json_list(out, inference.tensors, inferred_json);
  out << "}\n";
}

}  // namespace ttrace
