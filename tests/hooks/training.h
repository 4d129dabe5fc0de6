// Small models and the reading back of what a traced step left.
#pragma once

#include "hooks/base/scalar_type.h"
#include "hooks/pass_environment.h"
#include "support/temporary_directory.h"
#include "trace/file/trace_reader.h"

#include <ttrace/session.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::testing {

inline at::Tensor random_tensor(at::IntArrayRef shape, std::uint64_t seed = 7) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat));
}

// Units in the last place between two F32 or BF16 tensors.
inline at::Tensor units(const at::Tensor& left, const at::Tensor& right) {
  if (left.scalar_type() == at::kBFloat16) {
    return (left.contiguous().view(at::kShort).to(at::kLong) -
            right.contiguous().view(at::kShort).to(at::kLong))
        .abs();
  }
  return (left.contiguous().view(at::kInt).to(at::kLong) -
          right.contiguous().view(at::kInt).to(at::kLong))
      .abs();
}

// A root module that holds children by name.
struct Holder : torch::nn::Module {
  template <class Child>
  Child add(const std::string& name, Child child) {
    return register_module(name, child);
  }
};

// Deterministic parameters, whatever torch's generator has done before.
inline void fill_all(torch::nn::Module& module) {
  std::vector<NamedTensor> parameters;
  for (const auto& item : module.named_parameters()) {
    parameters.push_back({item.key(), item.value()});
  }
  fill_parameters(parameters, Layout(), Annotations(), 1);
}

// One rank's records of one step, read back.
class Captured {
 public:
  explicit Captured(const std::string& file) : file_(file) {
    for (const Record& record : file_.records()) {
      by_id_.emplace(to_string(record.id), record);
    }
  }

  [[nodiscard]] bool has(const std::string& id) const { return by_id_.contains(id); }
  [[nodiscard]] const Record& record(const std::string& id) const {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) {
      throw std::runtime_error("no record " + id + " among:\n" + list());
    }
    return found->second;
  }
  [[nodiscard]] at::Tensor tensor(const std::string& id) const {
    const Record& row = record(id);
    at::Tensor result = at::empty(row.shape, at::TensorOptions().dtype(scalar_type(row.type)));
    const auto bytes = file_.bytes(row);
    if (!bytes.empty()) {
      std::memcpy(result.mutable_data_ptr(), bytes.data(), bytes.size());
    }
    return result;
  }
  [[nodiscard]] const std::vector<std::string>& notes() const { return file_.notes(); }
  [[nodiscard]] const CodeLines& code() const { return file_.code(); }
  // "s0/m0/input/b/0 <- s0/m0/output/a/0", in execution order.
  [[nodiscard]] std::vector<std::string> edges() const {
    std::vector<std::string> result;
    for (const Edge& edge : file_.edges()) {
      result.push_back(to_string(edge.consumer) + " <- " + to_string(edge.producer));
    }
    return result;
  }
  [[nodiscard]] const std::vector<RoundedSum>& sums() const { return file_.sums(); }
  // Ids of records that sums over ranks went into.
  [[nodiscard]] std::vector<std::string> ids_of_sums() const {
    std::vector<std::string> result;
    for (const RoundedSum& sum : file_.sums()) {
      result.push_back(to_string(sum.id));
    }
    return result;
  }
  [[nodiscard]] std::vector<std::string> ids() const {
    std::vector<std::string> result;
    for (const auto& [id, record] : by_id_) {
      result.push_back(id);
    }
    return result;
  }
  // Ids that contain `part`, in execution order.
  [[nodiscard]] std::vector<std::string> ids_with(const std::string& part) const {
    std::map<std::uint64_t, std::string> ordered;
    for (const auto& [id, record] : by_id_) {
      if (id.find(part) != std::string::npos) {
        ordered[record.order] = id;
      }
    }
    std::vector<std::string> result;
    for (const auto& [order, id] : ordered) {
      result.push_back(id);
    }
    return result;
  }
  [[nodiscard]] std::string list() const {
    std::string result;
    for (const std::string& id : ids()) {
      result += "  " + id + "\n";
    }
    return result;
  }

 private:
  RankFile file_;
  std::map<std::string, Record> by_id_;
};

inline std::string step0(const TemporaryDirectory& directory) {
  return directory / "step000000/rank00000.h5";
}

// Runs `body(step)` as the one traced step of a reference pass of `root`, and reads it back.
inline Captured trace_step(const torch::nn::Module& root,
                           const std::function<void(Step&)>& body,
                           const Annotations& annotations = {},
                           const Variables& more = {}) {
  const TemporaryDirectory directory;
  Variables variables = reference_pass(directory.path());
  variables.insert(more.begin(), more.end());
  const PassEnvironment environment(variables);
  {
    auto session = Session::from_environment();
    session.attach(root, Layout(), annotations);
    auto step = session.step(0);
    body(step);
  }
  return Captured(step0(directory));
}

// The same with one micro-batch around everything.
inline Captured trace_microbatch(const torch::nn::Module& root,
                                 const std::function<void()>& body,
                                 const Annotations& annotations = {}) {
  return trace_step(
      root,
      [&](Step& step) {
        const auto microbatch = step.microbatch(0);
        body();
      },
      annotations);
}

#define EXPECT_SAME(left, right) EXPECT_TRUE(at::equal(left, right)) << (left) << (right)

}  // namespace ttrace::testing
