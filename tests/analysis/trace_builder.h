// Writes small real traces for the tests of the comparison.
#pragma once

#include "trace/file/manifest.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"
#include "trace/sums/slices.h"

#include <ttrace/element_type.h>
#include <ttrace/layout.h>
#include <ttrace/placement.h>
#include <ttrace/tensor_id.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::testing {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr auto kOutput = "s0/m0/output/fc/0";   // wherever one tensor is enough
inline const std::string kFirst = "s0/m0/output/a/0";  // and wherever one follows the other
inline const std::string kSecond = "s0/m0/output/b/0";

// A tensor of one rank. Without shape it has one dimension, without placement it is whole.
struct Tensor {
  std::string id;
  std::vector<double> values;
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape = {};
  Placement placement = {};
  bool undeclared = false;  // nobody said where it lies
  bool needs_no_gradient = false;
  std::optional<SampleDim> samples = {};
  std::uint64_t time = 0;  // nanoseconds; see TraceBuilder::began()
};

// Values without pattern, the same on every call: neither zero nor equal to one another.
inline std::vector<double> wavy(std::size_t count, double phase = 0.0) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(std::sin(1.7 * static_cast<double>(i) + phase) + 0.1);
  }
  return values;
}

// `values` with an error of the relative size `size` that looks like round-off.
inline std::vector<double> off(const std::vector<double>& values, double size, double phase) {
  const std::vector<double> direction = wavy(values.size(), phase);
  double norm = 0.0;
  double error = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    norm += values[i] * values[i];
    error += direction[i] * direction[i];
  }
  std::vector<double> result = values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    result[i] += direction[i] * size * std::sqrt(norm / error);
  }
  return result;
}

inline std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values) {
    value *= factor;
  }
  return values;
}

// One dimension cut into `count` equal parts, of which this is number `index`.
inline Placement part(std::int64_t logical, int index, int count) {
  const std::int64_t local = logical / count;
  return Placement{{DimPlacement{local, logical, {{0, index * local, local}}}}, 0, 1, "", 1.0};
}

class TraceBuilder {
 public:
  TraceBuilder(std::string directory,
               std::string pass,
               int ranks = 1,
               const std::string& axis = "tp")
      : directory_(std::move(directory)), records_(static_cast<std::size_t>(ranks)) {
    manifest.pass = std::move(pass);
    manifest.world_size = ranks;
    manifest.precision = "f32";
    manifest.model = {{"hidden", "128"}};
    manifest.data = {{"seed", "1"}};
    manifest.versions = {{"ttrace", "0.1.0"}};
    if (ranks > 1) {
      axes_ = {{axis, ranks, 1}};
      manifest.layout = {{axis, std::to_string(ranks)}};
    }
  }

  // Appends in execution order.
  TraceBuilder& add(int rank, Tensor tensor) {
    records_.at(static_cast<std::size_t>(rank)).push_back(std::move(tensor));
    return *this;
  }
  TraceBuilder& add_everywhere(const Tensor& tensor) {
    for (auto& records : records_) {
      records.push_back(tensor);
    }
    return *this;
  }
  // Another axis on which the ranks have the same places, as the axes of experts are one.
  TraceBuilder& add_axis(const std::string& axis) {
    axes_.push_back({axis, manifest.world_size, 1});
    return *this;
  }
  // Replaces the only axis; neighbours on the first axis are neighbouring ranks.
  TraceBuilder& set_axes(const std::vector<std::pair<std::string, int>>& axes) {
    axes_.clear();
    manifest.layout.clear();
    int stride = 1;
    for (const auto& [axis, size] : axes) {
      axes_.push_back({axis, size, stride});
      manifest.layout[axis] = std::to_string(size);
      stride *= size;
    }
    return *this;
  }
  TraceBuilder& sum(int rank, RoundedSum sum) {
    sums_[rank].push_back(std::move(sum));
    return *this;
  }
  TraceBuilder& edge(int rank,
                     const std::string& consumer,
                     const std::string& producer,
                     std::uint64_t time = 0) {
    edges_[rank].push_back({parse_tensor_id(consumer), parse_tensor_id(producer), 0, time});
    return *this;
  }
  // The rank's file has times, from this one on (nanoseconds since 1970).
  TraceBuilder& began(int rank, std::uint64_t time) {
    began_[rank] = time;
    return *this;
  }
  TraceBuilder& note(int rank, const std::string& text) {
    notes_[rank].push_back(text);
    return *this;
  }

  TraceBuilder& not_seen(int rank, NotSeenKind kind, const std::string& sentence) {
    not_seen_[rank].push_back({kind, sentence});
    return *this;
  }

  TraceBuilder& code(int rank, CodeRole role, const std::string& path, const std::string& text) {
    code_[rank].add(role, path, text);
    return *this;
  }

  Trace write() {
    std::map<std::pair<std::int64_t, int>, std::vector<const Tensor*>> files;
    for (std::size_t rank = 0; rank < records_.size(); ++rank) {
      files[{0, static_cast<int>(rank)}];
      for (const Tensor& tensor : records_[rank]) {
        files[{parse_tensor_id(tensor.id).step, static_cast<int>(rank)}].push_back(&tensor);
      }
    }
    manifest.steps.clear();
    for (const auto& [key, tensors] : files) {
      if (key.second == 0) {
        manifest.steps.push_back(key.first);
      }
    }
    write_manifest(directory_, manifest);
    for (const auto& [key, tensors] : files) {
      write_file(key.first, key.second, tensors);
    }
    return Trace::open(directory_);
  }

  Manifest manifest;
  Keep keep = Keep::kBytes;  // of large tensors

 private:
  void write_file(std::int64_t step, int rank, const std::vector<const Tensor*>& tensors) {
    Layout layout;
    layout.rank = rank;
    layout.world_size = manifest.world_size;
    for (const RankAxis& axis : axes_) {
      layout.add(axis.name, axis.size, rank / axis.stride % axis.size);
    }
    const auto began = began_.find(rank);
    TraceWriter writer(
        step_file(directory_, step, rank),
        layout,
        {.began = began == began_.end() ? std::nullopt : std::optional(began->second),
         .keeping = {keep}});
    std::uint64_t order = 0;
    for (const Tensor* tensor : tensors) {
      Record record;
      record.id = parse_tensor_id(tensor->id);
      record.type = tensor->type;
      record.shape = tensor->shape;
      if (record.shape.empty() && tensor->values.size() != 1) {
        record.shape = {static_cast<std::int64_t>(tensor->values.size())};
      }
      record.placement = tensor->placement.dims.empty() && tensor->placement.partial_count == 1
                             ? whole(record.shape)
                             : tensor->placement;
      record.undeclared = tensor->undeclared;
      record.needs_no_gradient = tensor->needs_no_gradient;
      record.samples = tensor->samples;
      record.order = order++;
      record.time = tensor->time;
      std::vector<std::byte> bytes(tensor->values.size() * element_size(tensor->type));
      from_double(tensor->type,
                  tensor->values.data(),
                  static_cast<std::int64_t>(tensor->values.size()),
                  bytes.data());
      writer.append(record, bytes);
    }
    for (const std::string& text : notes_[rank]) {
      writer.note(text);
    }
    for (const NotSeen& fact : not_seen_[rank]) {
      writer.not_seen(fact);
    }
    for (const auto& [path, text] : code_[rank].sources) {
      writer.code(CodeRole::kSource, path, text);
    }
    for (const auto& [path, text] : code_[rank].calls) {
      writer.code(CodeRole::kCall, path, text);
    }
    for (const RoundedSum& sum : sums_[rank]) {
      writer.sum(sum);
    }
    for (const Edge& edge : edges_[rank]) {
      writer.edge(edge);
    }
    writer.commit();
  }

  struct RankAxis {
    std::string name;
    int size = 1;
    int stride = 1;  // ranks between neighbours
  };

  std::string directory_;
  std::vector<RankAxis> axes_;
  std::vector<std::vector<Tensor>> records_;  // by rank
  std::map<int, std::vector<std::string>> notes_;
  std::map<int, std::vector<NotSeen>> not_seen_;
  std::map<int, CodeLines> code_;
  std::map<int, std::vector<RoundedSum>> sums_;
  std::map<int, std::vector<Edge>> edges_;
  std::map<int, std::uint64_t> began_;
};

// `passes` noise passes that all moved the tensors as `rows` says.
inline void write_noise_passes(const std::string& directory,
                               const std::vector<NoiseRow>& rows,
                               int passes = 5) {
  for (int seed = 1; seed <= passes; ++seed) {
    write_noise(directory, NoisePass{seed, rows});
  }
}

// `row` as one of five passes has it whose elements err independently of one another: squared
// errors of n elements have the relative variance 2 / n, and all means are those of `row`. Slices
// are those of a tensor of this shape. `seed` from 1.
inline NoiseRow as_pass(NoiseRow row, const std::vector<std::int64_t>& shape, int seed) {
  // Of mean 0 and, over 5 - 1, of variance 1.
  constexpr std::array kDeviations = {-1.264911, -0.632456, 0.0, 0.632456, 1.264911};
  const auto factor = [&](std::int64_t elements, std::size_t turn) {
    return 1.0 + std::sqrt(2.0 / static_cast<double>(elements)) *
                     kDeviations.at((static_cast<std::size_t>(seed) - 1 + turn) % 5);
  };
  row.sum_squared *= factor(element_count(shape), 0);
  for (const Slicing& slicing : slicings_of(shape)) {
    const auto count = static_cast<std::size_t>(slicing.count);
    for (std::size_t i = slicing.first; i < std::min(row.slices.size(), slicing.first + count);
         ++i) {
      row.slices[i] *= factor(element_count(shape) / slicing.count, i);
    }
  }
  return row;
}

// Five passes that differ as as_pass() says.
inline void write_varied_noise_passes(const std::string& directory,
                                      const NoiseRow& row,
                                      const std::vector<std::int64_t>& shape) {
  for (int seed = 1; seed <= 5; ++seed) {
    write_noise(directory, NoisePass{seed, {as_pass(row, shape, seed)}});
  }
}

// Noise of norm `norm` whose largest element is `largest`.
inline NoiseRow noise_row(const std::string& id, double norm, double largest) {
  return {parse_tensor_id(id), norm * norm, largest, 0};
}

}  // namespace ttrace::testing
