#include "analysis/infer/annotation_file.h"

#include "trace/base/annotation_field.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <utility>

namespace ttrace {
namespace {

using Field = std::pair<std::string, int>;   // name and slot
using Entry = std::map<Field, std::string>;  // dims

// All paths of one pattern.
struct Group {
  std::size_t number = 0;              // of its first tensor
  std::map<std::string, Entry> paths;  // as they are
  Entry usual;                         // what most of them have
};

// The dims with the most votes; ties go to the first in the alphabet.
std::string most_frequent(const std::map<std::string, std::size_t>& votes) {
  return std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; })->first;
}

std::map<std::string, Group> groups_of(const Inference& inference,
                                       std::vector<std::string>& warnings) {
  // The dims of a path's tensors, by path and field.
  std::map<std::string, std::map<Field, std::map<std::string, std::size_t>>> votes;
  std::map<std::string, Group> groups;
  for (std::size_t i = 0; i < inference.tensors.size(); ++i) {
    const InferredTensor& tensor = inference.tensors[i];
    const bool flat = !tensor.placements.empty() && tensor.placements.front().flat;
    if (tensor.dims.empty() || flat) {
      continue;
    }
    groups.try_emplace(tensor.tensors.pattern, Group{i, {}, {}})
        .first->second.paths[tensor.id.path];
    ++votes[tensor.id.path][{tensor.tensors.field, tensor.tensors.slot}][tensor.dims];
  }
  for (auto& [pattern, group] : groups) {
    std::map<Field, std::map<std::string, std::size_t>> together;
    for (auto& [path, entry] : group.paths) {
      for (const auto& [field, dims] : votes[path]) {
        entry[field] = most_frequent(dims);
        ++together[field][entry[field]];
        if (dims.size() > 1) {
          warnings.push_back(
              fmt::format("{} has several placements as {}, but the file can hold only one: {}",
                          path,
                          field.first,
                          entry[field]));
        }
      }
    }
    for (const auto& [field, dims] : together) {
      group.usual[field] = most_frequent(dims);
    }
  }
  return groups;
}

// Dims by slot. A slot that no trace has gets the dims of its neighbour.
std::vector<std::string> slots_of(const Entry& entry, const std::string& field) {
  std::vector<std::string> slots;
  for (const auto& [key, dims] : entry) {
    if (key.first == field) {
      slots.resize(static_cast<std::size_t>(key.second) + 1, dims);
      slots.back() = dims;
    }
  }
  return slots;
}

void write_entry(YAML::Emitter& out, const std::string& path, const Entry& entry) {
  out << YAML::BeginMap << YAML::Key << "path" << YAML::Value << path;
  for (const AnnotationField& field : kAnnotationFields) {
    const std::string name(field.name);
    const std::vector<std::string> slots = slots_of(entry, name);
    const bool as_default = (name == "grad" && slots == slots_of(entry, "value")) ||
                            (name == "input_grads" && slots == slots_of(entry, "inputs"));
    if (slots.empty() || as_default) {
      continue;
    }
    out << YAML::Key << name << YAML::Value;
    if (slots.size() == 1) {
      out << YAML::DoubleQuoted << slots.front();
      continue;
    }
    out << YAML::Flow << YAML::BeginSeq;
    for (const std::string& dims : slots) {
      out << YAML::DoubleQuoted << dims;
    }
    out << YAML::EndSeq;
  }
  out << YAML::EndMap;
}

}  // namespace

AnnotationFile annotation_file(const Inference& inference, const std::string& origin) {
  AnnotationFile file;
  const std::map<std::string, Group> groups = groups_of(inference, file.warnings);
  std::vector<const std::pair<const std::string, Group>*> order;
  for (const auto& group : groups) {
    order.push_back(&group);
  }
  // The first match rules: what has fewer stars stands first.
  std::ranges::sort(order, {}, [](const auto* group) {
    return std::pair(std::ranges::count(group->first, '*'), group->second.number);
  });
  YAML::Emitter out;
  out << YAML::Comment("Placements that ttrace infer found in " + origin) << YAML::Newline;
  out << YAML::BeginMap << YAML::Key << "tensors" << YAML::Value << YAML::BeginSeq;
  for (const auto* const group : order) {
    for (const auto& [path, entry] : group->second.paths) {
      Entry own = group->second.usual;
      for (const auto& [field, dims] : entry) {
        own[field] = dims;
      }
      if (path != group->first && own != group->second.usual) {
        write_entry(out, path, own);
      }
    }
  }
  for (const auto* const group : order) {
    write_entry(out, group->first, group->second.usual);
  }
  out << YAML::EndSeq << YAML::EndMap;
  file.text = std::string(out.c_str()) + "\n";
  return file;
}

}  // namespace ttrace
