// The library's API as TorchScript classes: what python/ttrace calls after
// torch.ops.load_library(). Classes and methods forward; their names are those of
// <ttrace/session.h>. Needs no Python at build time, and serves any version of it.
#include "hooks/session/torch_imports.h"
#include "hooks/session/torch_scopes.h"
#include "hooks/session/torch_traces.h"

#include <ttrace/error.h>
#include <ttrace/session.h>

#include <torch/custom_class.h>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using c10::intrusive_ptr;
using Strings = std::vector<std::string>;
using Integers = std::vector<std::int64_t>;
using Tensors = std::vector<at::Tensor>;
using OptionalTensors = std::vector<std::optional<at::Tensor>>;
using Texts = c10::Dict<std::string, std::string>;
// Of each entry the names of its states, and their tensors.
using Names = std::vector<Strings>;
using TensorLists = std::vector<Tensors>;

constexpr std::int64_t kNotFlat = -1;

Section section_of(const Texts& texts) {
  Section section;
  for (const auto& entry : texts) {
    section[entry.key()] = entry.value();
  }
  return section;
}

std::optional<std::int64_t> flat_first_of(std::int64_t first) {
  return first == kNotFlat ? std::nullopt : std::optional(first);
}

template <class... Lists>
void check_lengths(const char* function, std::size_t expected, const Lists&... lists) {
  TTRACE_CHECK(((lists.size() == expected) && ...),
               UsageError,
               function,
               " got lists of different lengths; all lists need one item per entry");
}

std::vector<NamedTensor> named_tensors(const Strings& paths, const Tensors& tensors) {
  std::vector<NamedTensor> named;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    named.push_back({paths[i], tensors[i]});
  }
  return named;
}

std::vector<std::pair<std::string, at::Tensor>> named_states(const Strings& names,
                                                             const Tensors& tensors) {
  check_lengths("Step.parameters_updated", names.size(), tensors);
  std::vector<std::pair<std::string, at::Tensor>> states;
  for (std::size_t i = 0; i < names.size(); ++i) {
    states.emplace_back(names[i], tensors[i]);
  }
  return states;
}

// (name, size, coordinate, follows) of an axis: see Layout.
using AxisTuple = std::tuple<std::string, std::int64_t, std::int64_t, std::string>;
using RoleTuple = std::tuple<std::string, std::string>;
// (path, field, slot, dims) of a placement that the program has derived: see Annotations::derive().
using DerivedTuple = std::tuple<std::string, std::string, std::int64_t, std::string>;

Layout layout_of(std::int64_t rank, std::int64_t world_size, const std::vector<AxisTuple>& axes) {
  Layout layout;
  layout.rank = static_cast<int>(rank);
  layout.world_size = static_cast<int>(world_size);
  for (const auto& [name, size, coordinate, follows] : axes) {
    layout.add(name, static_cast<int>(size), static_cast<int>(coordinate), follows);
  }
  return layout;
}

struct MicrobatchObject : torch::CustomClassHolder {
  explicit MicrobatchObject(Microbatch&& begun) : microbatch(std::move(begun)) {}

  Microbatch& get() {
    TTRACE_CHECK(microbatch.has_value(),
                 UsageError,
                 "a micro-batch was used after its end; begin another one");
    return *microbatch;
  }

  std::optional<Microbatch> microbatch;
};

struct StepObject : torch::CustomClassHolder {
  explicit StepObject(Step&& begun) : step(std::move(begun)) {}

  Step& get() {
    TTRACE_CHECK(step.has_value(), UsageError, "a step was used after its end; begin another one");
    return *step;
  }
  void gradients_reduced(const Strings& paths, const Tensors& gradients, const Integers& firsts) {
    check_lengths("Step.gradients_reduced", paths.size(), gradients, firsts);
    std::vector<NamedTensor> entries;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      entries.push_back({paths[i], gradients[i], flat_first_of(firsts[i])});
    }
    get().gradients_reduced(entries);
  }
  void parameters_updated(const Strings& paths,
                          const OptionalTensors& parameters,
                          const OptionalTensors& masters,
                          const OptionalTensors& first_moments,
                          const OptionalTensors& second_moments,
                          const Integers& firsts,
                          const Names& state_names,
                          const TensorLists& states) {
    check_lengths("Step.parameters_updated",
                  paths.size(),
                  parameters,
                  masters,
                  first_moments,
                  second_moments,
                  firsts,
                  state_names,
                  states);
    const auto tensor_of = [](const std::optional<at::Tensor>& tensor) {
      return tensor.value_or(at::Tensor());
    };
    std::vector<OptimizerEntry> entries;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      entries.push_back({paths[i],
                         tensor_of(parameters[i]),
                         tensor_of(masters[i]),
                         tensor_of(first_moments[i]),
                         tensor_of(second_moments[i]),
                         flat_first_of(firsts[i]),
                         named_states(state_names[i], states[i])});
    }
    get().parameters_updated(entries);
  }
  // Masters and moments are among the states, under these names.
  void states_before(const Strings& paths,
                     const Integers& firsts,
                     const Names& state_names,
                     const TensorLists& states,
                     const Strings& buffer_paths,
                     const Tensors& buffers) {
    check_lengths("Step.states_before", paths.size(), firsts, state_names, states);
    check_lengths("Step.states_before", buffer_paths.size(), buffers);
    std::vector<OptimizerEntry> entries;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      OptimizerEntry& entry = entries.emplace_back();
      entry.path = paths[i];
      entry.flat_first = flat_first_of(firsts[i]);
      entry.states = named_states(state_names[i], states[i]);
    }
    get().states_before(entries, named_tensors(buffer_paths, buffers));
  }
  void copies_updated(const Strings& paths, const Strings& names, const Tensors& copies) {
    check_lengths("Step.copies_updated", paths.size(), names, copies);
    std::vector<OptimizerEntry> entries;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      OptimizerEntry& entry = entries.emplace_back();
      entry.path = paths[i];
      entry.copies = {{names[i], copies[i]}};
    }
    get().parameters_updated(entries);
  }
  void buffers(const Strings& paths, const Tensors& buffers) {
    check_lengths("Step.buffers", paths.size(), buffers);
    get().buffers(named_tensors(paths, buffers));
  }

  std::optional<Step> step;
};

struct SessionObject : torch::CustomClassHolder {
  SessionObject() : session(Session::from_environment()) {}

  void describe(const Texts& model,
                const Texts& data,
                const Texts& versions,
                const std::string& precision,
                const Strings& untraced) {
    session.describe({.model = section_of(model),
                      .data = section_of(data),
                      .versions = section_of(versions),
                      .precision = precision,
                      .untraced = untraced});
  }
  // Must be called before attach().
  void set_layout(std::int64_t rank, std::int64_t world_size, const std::vector<AxisTuple>& axes) {
    layout = layout_of(rank, world_size, axes);
  }
  // Must be called between set_layout() and attach(). `others` has the axes of every rank after
  // this one, all of which this process simulates.
  void simulate(const std::vector<std::vector<AxisTuple>>& others) {
    std::vector<Layout> layouts;
    for (const std::vector<AxisTuple>& axes : others) {
      layouts.push_back(layout_of(std::ssize(layouts) + 1, std::ssize(others) + 1, axes));
    }
    session.simulate(std::move(layouts));
  }
  // Must be called before attach(). `text` is the text of an annotation file, which messages call
  // `origin`; `roles` are (role, patterns).
  void set_annotations(const std::string& text,
                       const std::string& origin,
                       const std::vector<DerivedTuple>& derived,
                       const std::vector<RoleTuple>& roles) {
    annotations = Annotations::parse(text, origin);
    for (const auto& [path, field, slot, dims] : derived) {
      annotations.derive(path, field, static_cast<int>(slot), dims);
    }
    for (const auto& [role, patterns] : roles) {
      annotations.role(role, patterns);
    }
  }
  void attach(const Strings& paths, const Tensors& parameters, const Strings& module_paths) {
    check_lengths("Session.attach", paths.size(), parameters);
    std::vector<std::pair<std::string, const torch::nn::Module*>> modules;
    for (const std::string& path : module_paths) {
      modules.emplace_back(path, nullptr);
    }
    session.attach(named_tensors(paths, parameters), std::move(modules), layout, annotations);
  }

  Layout layout;
  Annotations annotations;
  Session session;
};

void register_microbatch(torch::Library& library) {
  library.class_<MicrobatchObject>("Microbatch")
      .def("permutation",
           [](const intrusive_ptr<MicrobatchObject>& self, std::int64_t samples) {
             return self->get().permutation(samples);
           })
      .def("resume", [](const intrusive_ptr<MicrobatchObject>& self) { self->get().resume(); })
      .def("data",
           [](const intrusive_ptr<MicrobatchObject>& self,
              const std::string& name,
              const at::Tensor& tensor) { self->get().data(name, tensor); })
      .def("loss",
           [](const intrusive_ptr<MicrobatchObject>& self, const at::Tensor& per_token) {
             self->get().loss(per_token);
           })
      .def("sent",
           [](const intrusive_ptr<MicrobatchObject>& self,
              const std::string& path,
              const at::Tensor& tensor,
              std::int64_t slot) { self->get().sent(path, tensor, static_cast<int>(slot)); })
      .def("received",
           [](const intrusive_ptr<MicrobatchObject>& self,
              const std::string& path,
              const at::Tensor& tensor,
              std::int64_t slot) { self->get().received(path, tensor, static_cast<int>(slot)); })
      .def("end", [](const intrusive_ptr<MicrobatchObject>& self) { self->microbatch.reset(); });
}

void register_step(torch::Library& library) {
  library.class_<StepObject>("Step")
      .def("microbatch",
           [](const intrusive_ptr<StepObject>& self, std::int64_t index, double gradient_scale) {
             return c10::make_intrusive<MicrobatchObject>(
                 self->get().microbatch(index, {.gradient_scale = gradient_scale}));
           })
      .def("traced", [](const intrusive_ptr<StepObject>& self) { return self->get().traced(); })
      .def("replaces_values",
           [](const intrusive_ptr<StepObject>& self) { return self->get().replaces_values(); })
      .def("fail",
           [](const intrusive_ptr<StepObject>& self, const std::string& reason) {
             self->get().fail(reason);
           })
      .def("parameters_gathered",
           [](const intrusive_ptr<StepObject>& self, const Strings& paths) {
             self->get().parameters_gathered(paths);
           })
      .def("gradients_reduced", &StepObject::gradients_reduced)
      .def("scalar",
           [](const intrusive_ptr<StepObject>& self, const std::string& name, double value) {
             self->get().scalar(name, value);
           })
      .def("note",
           [](const intrusive_ptr<StepObject>& self, const std::string& sentence) {
             self->get().note(sentence);
           })
      .def("source",
           [](const intrusive_ptr<StepObject>& self,
              const std::string& path,
              const std::string& line) { self->get().source(path, line); })
      .def("called_at",
           [](const intrusive_ptr<StepObject>& self,
              const std::string& path,
              const std::string& line) { self->get().called_at(path, line); })
      .def("states_before", &StepObject::states_before)
      .def("parameters_updated", &StepObject::parameters_updated)
      .def("copies_updated", &StepObject::copies_updated)
      .def("buffers", &StepObject::buffers)
      .def("end", [](const intrusive_ptr<StepObject>& self) {
        close_scopes();
        self->step.reset();
      });
}

void register_session(torch::Library& library) {
  library.class_<SessionObject>("Session")
      .def(torch::init<>())
      .def("active",
           [](const intrusive_ptr<SessionObject>& self) { return self->session.active(); })
      .def("precision",
           [](const intrusive_ptr<SessionObject>& self, const std::string& own) {
             return self->session.precision(own);
           })
      .def("describe", &SessionObject::describe)
      .def("set_layout", &SessionObject::set_layout)
      .def("simulate", &SessionObject::simulate)
      .def("set_annotations", &SessionObject::set_annotations)
      .def("attach", &SessionObject::attach)
      .def("derive",
           [](const intrusive_ptr<SessionObject>& self,
              const std::string& path,
              const std::string& field,
              std::int64_t slot,
              const std::string& dims) {
             self->session.derive(path, field, static_cast<int>(slot), dims);
           })
      .def("not_seen",
           [](const intrusive_ptr<SessionObject>& self,
              const std::string& kind,
              const std::string& sentence) { self->session.not_seen(kind, sentence); })
      .def("load_parameters",
           [](const intrusive_ptr<SessionObject>& self) { return self->session.load_parameters(); })
      .def("step",
           [](const intrusive_ptr<SessionObject>& self,
              std::int64_t iteration,
              const Strings& gathered_later) {
             return c10::make_intrusive<StepObject>(
                 self->session.step(iteration, {.gathered_later = gathered_later}));
           });
}

TORCH_LIBRARY(ttrace, library) {
  register_microbatch(library);
  register_step(library);
  register_session(library);
  register_scopes(library);
  register_traces(library);
  register_imports(library);
}

}  // namespace
}  // namespace ttrace
