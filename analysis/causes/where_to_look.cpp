#include "analysis/causes/where_to_look.h"

#include "analysis/align/model_vocabulary.h"
#include "analysis/align/module_path.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"
#include "trace/base/state_path.h"

#include <ttrace/error.h>
#include <ttrace/layout.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace ttrace {
namespace {

// What is known of the tensors of the same parameter and step that have another kind.
std::string state_of(std::span<const TensorVerdict> tensors, const TensorId& id, Kind kind) {
  std::int64_t within = 0;
  std::int64_t beyond = 0;
  for (const TensorVerdict& tensor : tensors) {
    if (tensor.id.step == id.step && tensor.id.kind == kind && tensor.id.path == parameter_of(id) &&
        is_judged(tensor.status())) {
      (tensor.status() == Status::kWithin ? within : beyond) += 1;
    }
  }
  if (within + beyond == 0) {
    return fmt::format("no {} of it was recorded", name_of(kind));
  }
  if (beyond > 0) {
    return fmt::format("{} of its {} {} as well",
                       counted(beyond, "record"),
                       name_of(kind),
                       beyond == 1 ? "diverges" : "diverge");
  }
  return fmt::format("{} of its {} {} within bound",
                     counted(within, "record"),
                     name_of(kind),
                     within == 1 ? "is" : "are");
}

// What is known of a tensor before the first divergence, which need not be within its bound.
std::string_view standing_of(const TensorVerdict& tensor) {
  if (tensor.allowed() && tensor.status() != Status::kWithin) {
    return "is not judged, because the user allows it to differ";
  }
  switch (tensor.status()) {
    case Status::kWithin:
      return "is within bound";
    case Status::kInherited:
      return "is beyond its bound because it inherited an error, but its own operators are right";
    case Status::kBehindFlip:
      return "differs, but depends on another choice of experts, so no bound applies";
    case Status::kIncomplete:
    case Status::kNotJudged:
      return "is not judged";
    default:
      return "is wrong as well";
  }
}

// The forward tensor recorded just before, in the same micro-batch.
std::string predecessor(std::span<const TensorVerdict> tensors, std::size_t index) {
  for (std::size_t i = index; i-- > 0;) {
    if (is_first_forward(tensors[i].id) && same_microbatch(tensors[i].id, tensors[index].id)) {
      return fmt::format("the forward record before it, {}, {}",
                         to_string(tensors[i].id),
                         standing_of(tensors[i]));
    }
  }
  return "no forward record of its micro-batch comes before it";
}

// "decoder.layers.1, decoder.final_layernorm": modules whose outputs follow in forward order.
std::string next_modules(std::span<const TensorVerdict> tensors, const TensorId& id) {
  constexpr std::size_t kNamed = 2;
  std::vector<std::string> paths;
  bool seen = false;
  for (const TensorVerdict& tensor : tensors) {
    if (!is_first_forward(tensor.id) || !same_microbatch(tensor.id, id)) {
      continue;
    }
    if (tensor.id.path == id.path) {
      seen = true;
    } else if (seen && std::find(paths.begin(), paths.end(), tensor.id.path) == paths.end()) {
      paths.push_back(tensor.id.path);
    }
    if (paths.size() == kNamed) {
      break;
    }
  }
  if (paths.empty()) {
    return "no later module was recorded, so everything up to the loss may be the cause";
  }
  return fmt::format("next in forward order: {}", fmt::join(paths, ", "));
}

// Two of the ranks that disagree, as near to each other in the layout as any: the axes on which
// they differ name the communication that should have made them equal.
struct Neighbours {
  int left = 0;
  int right = 0;
  std::vector<std::string> axes;
};

// `ranks` recorded something in `step`.
Neighbours nearest(std::span<const int> ranks, std::int64_t step, const Trace& candidate) {
  const auto layout_of = [&](int rank) -> const Layout& {
    for (const StepTrace& stored : candidate.steps()) {
      for (const RankFile& file : stored.ranks) {
        if (stored.step == step && file.layout().rank == rank) {
          return file.layout();
        }
      }
    }
    TTRACE_THROW(InternalError, "rank ", rank, " recorded nothing in step ", step);
  };
  const Layout& first = layout_of(ranks.front());
  Neighbours best;
  for (const int rank : ranks.subspan(1)) {
    const Layout& other = layout_of(rank);
    std::vector<std::string> axes;
    for (const Axis& axis : first.axes) {
      if (axis.follows.empty() && axis.coordinate != other.coordinate(axis.name)) {
        axes.push_back(axis.name);
      }
    }
    if (best.right == 0 || axes.size() < best.axes.size()) {
      best = {ranks.front(), rank, axes};
    }
  }
  return best;
}

// That ranks hold different copies, and on which axes two of them differ.
std::string copies_text(const TensorVerdict& tensor, const Trace& candidate) {
  const std::vector<int> ranks = tensor.ranks();
  const std::string text = ranks_text(ranks) + " should hold the same values";
  const Neighbours two =
      ranks.size() > 1 ? nearest(ranks, tensor.id.step, candidate) : Neighbours();
  return two.axes.empty()
             ? text
             : fmt::format("{}; ranks {} and {} do not, and their coordinates differ on {}",
                           text,
                           two.left,
                           two.right,
                           fmt::join(two.axes, " and "));
}

// "fc1's weight": whose scale or history it is; slots as Scope::scale numbers them.
std::string operand_of(const TensorId& id) {
  return id.path + (id.slot == 0             ? "'s input"
                    : id.slot == kWeightSlot ? "'s weight"
                                             : "'s gradient of its output");
}

// The candidate's name of the axis whose ranks have samples of their own.
std::string data_parallel_axis(const Trace& candidate) {
  const ModelVocabulary vocabulary(candidate.manifest().roles);
  for (const auto& [axis, size] : candidate.manifest().layout) {
    if (vocabulary.is(Role::kDataParallel, axis)) {
      return axis;
    }
  }
  return "dp";
}

// What to check, as a pattern whose fields where_to_look() fills in.
using Advice = std::string_view;

constexpr Advice kReadsOthers =
    "check which samples the loader of each rank reads: in every step both programs must read the "
    "same ones, so a sampler that shuffles must be in both, in one process as DistributedSampler "
    "with num_replicas=1 and rank=0";

Advice advice_on_copies(Kind kind) {
  switch (kind) {
    case Kind::kParamGrad:
    case Kind::kMainGrad:
      return "check how ranks reduce the gradient of {path}: {copies}";
    case Kind::kParam:
    case Kind::kMaster:
    case Kind::kParamNext:
    case Kind::kExpAvg:
    case Kind::kExpAvgSq:
    case Kind::kState:
    case Kind::kCopy:
    case Kind::kBuffer:
    case Kind::kStateBefore:
      return "check how ranks keep {path} equal: {copies}";
    case Kind::kStart:
      return "check what gives {path} its start values: all ranks need one seed for it, or the "
             "values "
             "of one rank; {copies}";
    case Kind::kGradOutput:
      return "check the backward of the modules that consume the output of {path}: {copies}";
    case Kind::kDraw:
      return "check the state of the random numbers in {path}: {copies}";
    case Kind::kOperand:
      return "check which codes and which scale each rank uses for {operand}: {copies}";
    case Kind::kScale:
    case Kind::kAmaxHistory:
      return "check how ranks share the largest magnitude, from which the scale of {operand} "
             "follows: {copies}";
    default:
      return "check what differs between ranks in {path} (its input, its parameters, its "
             "communication, or its random numbers): {copies}";
  }
}

// Whether a parameter has it only if it is trained.
bool is_trained_value(Kind kind) {
  return kind == Kind::kParamGrad || kind == Kind::kMainGrad || kind == Kind::kMaster ||
         kind == Kind::kExpAvg || kind == Kind::kExpAvgSq || kind == Kind::kState;
}

// Of what one side alone has.
Advice advice_on_missing(const TensorVerdict& tensor) {
  if (tensor.id.kind == Kind::kDraw) {
    return "check whether {path} draws random numbers in both programs";
  }
  if (tensor.id.kind == Kind::kStateBefore) {
    return "check that a checkpoint stores {state} of {parameter} and that the program loads "
           "it "
           "before the step: both runs have it after the step";
  }
  if (is_trained_value(tensor.id.kind)) {
    return "check whether both programs train {parameter}: its requires_grad, the optimizer's "
           "groups, and whether the loss depends on it";
  }
  return tensor.status() == Status::kMissingInReference
             ? "check whether the reference has {path} under another name, step or micro-batch"
             : "check whether the candidate runs {path} in this micro-batch and under this "
               "name; the notes of its ranks may say why it is missing";
}

// Empty if the tensor's kind decides.
Advice advice_on_symptom(const TensorVerdict& tensor) {
  switch (tensor.symptom()) {
    case Symptom::kMissing:
      return advice_on_missing(tensor);
    case Symptom::kShapesDiffer:
      if (tensor.id.kind == Kind::kData) {
        return "check whether both programs cut the step into the same number of micro-batches of "
               "the same size; if they do, check the annotation (dims) of {path}";
      }
      [[fallthrough]];
    case Symptom::kRanksContradict:
    case Symptom::kGap:
    case Symptom::kOverlap:
    case Symptom::kAddendsMissing:
      return "check where the ranks' pieces of {path} lie according to its annotation (dims) or "
             "the rows (tokens) that its program names; then check what {ranks} {compute} there";
    case Symptom::kReplicasDisagree:
      return advice_on_copies(tensor.id.kind);
    case Symptom::kTypesDiffer:
      return tensor.id.kind == Kind::kOperand ? "check the FP8 format of {operand}"
                                              : "check the precision in which {path} is kept";
    case Symptom::kCollective:
      return "check the communication itself: the arguments of the call on {ranks}, buffers that "
             "change before the wait, and ranks that leave out a call";
    case Symptom::kRowsDiffer:
      return "check what chooses the rows of {path}: the router and the exchange of tokens";
    case Symptom::kMessage:
      return "check the messages of {path} between pipeline stages: their order, buffers that are "
             "reused too early, and whether the ranks wait for them";
    case Symptom::kSameDraws:
      return "check how {ranks} seed their random numbers in {path}";
    case Symptom::kSource:
      return "check what lies between {path} and the module before it: copies, gathers, reused "
             "buffers, and values that are overwritten in place";
    case Symptom::kTooAccurate:
      return "check the precision recipe of {path}: is autocast or FP8 active there, and in "
             "everything that feeds it?";
    case Symptom::kTooCoarse:
      return "check the precision in which {path} and everything that feeds it compute, add up and "
             "communicate";
    case Symptom::kRecompute:
      return "check what differs when {path} runs again in backward: random state, casts, and "
             "values that are overwritten in place";
    default:
      return "";
  }
}

Advice advice_on_kind(const TensorId& id) {
  switch (id.kind) {
    case Kind::kData:
      return "check the order of the samples and the global number of the micro-batch, which is "
             "i * {dp} + {dp}_rank for the i-th local one";
    case Kind::kParam:
      return id.step == 0 ? "check how the candidate loads {path} at the start"
                          : "check the update of {path} in the step before";
    case Kind::kGradOutput:
      return "check the backward of the modules that consume the output of {path}; {next}";
    case Kind::kGradInput:
      return "check the backward of {path} with respect to its input";
    case Kind::kParamGrad:
      return "check the backward of {module} with respect to {path}";
    case Kind::kMainGrad:
      return "check how the gradient of {path} is reduced and accumulated between backward and "
             "optimizer; {param_grad}";
    case Kind::kExpAvg:
    case Kind::kExpAvgSq:
      return "check the optimizer's moments of {path}, and clipping; {main_grad}";
    case Kind::kState:
      return "check how the optimizer keeps {state} of {parameter}; {main_grad}";
    case Kind::kCopy:
      return "check how the program keeps {state} of {parameter}: when it is updated, and from "
             "what; "
             "{param_next}";
    case Kind::kStateBefore:
      return "check what the steps before leave of {path}, what a checkpoint stores of it, and "
             "that the "
             "program loads it";
    case Kind::kBuffer:
      return "check what writes {path}: how often its module runs in a step, and on which samples";
    case Kind::kMaster:
      return "check the optimizer's update of {path}; {exp_avg}; {exp_avg_sq}";
    case Kind::kParamNext:
      return "check the update of {path} and its copy back from the master; {master}";
    case Kind::kLoss:
      return "check the loss; {before}";
    case Kind::kRouting:
      return "check the scores, their bias and the choice of experts in {path}; {before}";
    case Kind::kScalar:
      return "check how the candidate computes {path}; no tensor that was recorded before it "
             "diverges";
    case Kind::kScale:
    case Kind::kAmaxHistory:
      return "check how the scale of {operand} follows from the largest magnitudes: from which "
             "steps, and on which ranks; {before}";
    case Kind::kOperand:
      return "check how {operand} becomes codes: its scale, the rounding, and what happens to the "
             "codes before the product; {before}";
    case Kind::kInput:
      return "check what feeds {path}; {before}";
    default:
      return "check the forward of {path}; {before}";
  }
}

}  // namespace

std::string where_to_look(std::span<const TensorVerdict> tensors,
                          std::size_t index,
                          const Trace& candidate) {
  const TensorVerdict& tensor = tensors[index];
  const TensorId& id = tensor.id;
  const std::vector<int> ranks = tensor.ranks();
  const auto state = [&](Kind kind) { return state_of(tensors, id, kind); };
  const bool reads_others = tensor.symptom() == Symptom::kRowsDiffer && tensor.is_given;
  const Advice of_symptom = reads_others ? kReadsOthers : advice_on_symptom(tensor);
  return fmt::format(
      fmt::runtime(of_symptom.empty() ? advice_on_kind(id) : of_symptom),
      fmt::arg("path", id.path),
      fmt::arg("module", module_of(id.path)),
      fmt::arg("parameter", parameter_of(id)),
      fmt::arg("state", state_name_of(id)),
      fmt::arg("operand", operand_of(id)),
      fmt::arg("ranks", ranks_text(ranks)),
      fmt::arg("compute", ranks.size() == 1 ? "computes" : "compute"),
      fmt::arg(
          "copies",
          tensor.symptom() == Symptom::kReplicasDisagree ? copies_text(tensor, candidate) : ""),
      fmt::arg("dp", data_parallel_axis(candidate)),
      fmt::arg("before", predecessor(tensors, index)),
      fmt::arg("next", next_modules(tensors, id)),
      fmt::arg("param_grad", state(Kind::kParamGrad)),
      fmt::arg("main_grad", state(Kind::kMainGrad)),
      fmt::arg("exp_avg", state(Kind::kExpAvg)),
      fmt::arg("exp_avg_sq", state(Kind::kExpAvgSq)),
      fmt::arg("master", state(Kind::kMaster)),
      fmt::arg("param_next", state(Kind::kParamNext)));
}

}  // namespace ttrace
