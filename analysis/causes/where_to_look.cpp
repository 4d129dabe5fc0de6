#include "analysis/causes/where_to_look.h"

#include "analysis/align/module_path.h"
#include "analysis/findings/wording.h"

#include <ttrace/error.h>
#include <ttrace/layout.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace ttrace {
namespace {

bool is_forward(const TensorVerdict& tensor) {
  const Kind kind = tensor.id.kind;
  return !tensor.id.recompute && (kind == Kind::kOutput || kind == Kind::kInput);
}

bool same_microbatch(const TensorId& left, const TensorId& right) {
  return left.step == right.step && left.microbatch == right.microbatch;
}

// What is known of the tensors of the same parameter and step that have another kind.
std::string state_of(std::span<const TensorVerdict> tensors, const TensorId& id, Kind kind) {
  std::int64_t within = 0;
  std::int64_t beyond = 0;
  for (const TensorVerdict& tensor : tensors) {
    if (tensor.id.step == id.step && tensor.id.kind == kind && tensor.id.path == id.path &&
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
    if (is_forward(tensors[i]) && same_microbatch(tensors[i].id, tensors[index].id)) {
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
    if (!is_forward(tensor) || !same_microbatch(tensor.id, id)) {
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

// "fc1's weight": whose scale or history it is; slots as Scope::scale numbers them.
std::string operand_of(const TensorId& id) {
  return id.path + (id.slot == 0   ? "'s input"
                    : id.slot == 1 ? "'s weight"
                                   : "'s gradient of its output");
}

std::string look_at_replicas(const TensorVerdict& tensor, const Trace& candidate) {
  const std::vector<int> ranks = tensor.ranks();
  std::string who = ranks_text(ranks) + " should hold the same values";
  if (ranks.size() > 1) {
    const Neighbours two = nearest(ranks, tensor.id.step, candidate);
    if (!two.axes.empty()) {
      who += fmt::format("; ranks {} and {} do not, and their coordinates differ on {}",
                         two.left,
                         two.right,
                         fmt::join(two.axes, " and "));
    }
  }
  const std::string& path = tensor.id.path;
  switch (tensor.id.kind) {
    case Kind::kParamGrad:
    case Kind::kMainGrad:
      return fmt::format("check how ranks reduce the gradient of {}: {}", path, who);
    case Kind::kParam:
    case Kind::kMaster:
    case Kind::kParamNext:
    case Kind::kExpAvg:
    case Kind::kExpAvgSq:
      return fmt::format("check how ranks keep {} equal: {}", path, who);
    case Kind::kGradOutput:
      return fmt::format(
          "check the backward of the modules that consume the output of {}: {}", path, who);
    case Kind::kOperand:
      return fmt::format("check which codes and which scale each rank uses for {}: {}",
                         operand_of(tensor.id),
                         who);
    case Kind::kScale:
    case Kind::kAmaxHistory:
      return fmt::format(
          "check how ranks share the largest magnitude, from which the scale of {} follows: {}",
          operand_of(tensor.id),
          who);
    default:
      return fmt::format(
          "check what differs between ranks in {} (its input, its parameters, its communication, "
          "or "
          "its random numbers): {}",
          path,
          who);
  }
}

// What to check for a symptom, where {} stands for the tensor's path; empty if the tensor's kind
// decides.
std::string_view advice_on(Symptom symptom) {
  switch (symptom) {
    case Symptom::kRowsDiffer:
      return "check what chooses the rows of {}: the router and the exchange of tokens";
    case Symptom::kMessage:
      return "check the messages of {} between pipeline stages: their order, buffers that are "
             "reused too early, and whether the ranks wait for them";
    case Symptom::kSource:
      return "check what lies between {} and the module before it: copies, gathers, reused "
             "buffers, and values that are overwritten in place";
    case Symptom::kTooAccurate:
      return "check the precision recipe of {}: is autocast or FP8 active there, and in everything "
             "that feeds it?";
    case Symptom::kTooCoarse:
      return "check the precision in which {} and everything that feeds it compute, add up and "
             "communicate";
    case Symptom::kRecompute:
      return "check what differs when {} runs again in backward: random state, casts, and values "
             "that are overwritten in place";
    default:
      return "";
  }
}

std::string look_at_structure(const TensorVerdict& tensor, const Trace& candidate) {
  const std::string& path = tensor.id.path;
  const std::vector<int> ranks = tensor.ranks();
  switch (tensor.symptom()) {
    case Symptom::kMissing:
      if (tensor.status() == Status::kMissingInReference) {
        return fmt::format(
            "check whether the reference has {} under another name, step or micro-batch", path);
      }
      return fmt::format(
          "check whether the candidate runs {} in this micro-batch and under this name; the notes "
          "of its ranks may say why it is missing",
          path);
    case Symptom::kShapesDiffer:
      if (tensor.id.kind == Kind::kData) {
        return fmt::format(
            "check whether both programs cut the step into the same number of micro-batches of the "
            "same size; if they do, check the annotation (dims) of {}",
            path);
      }
      [[fallthrough]];
    case Symptom::kRanksContradict:
    case Symptom::kGap:
    case Symptom::kOverlap:
    case Symptom::kAddendsMissing:
      return fmt::format(
          "check where the ranks' pieces of {} lie according to its annotation (dims) or the rows "
          "(tokens) that its program names; then check what {} {} there",
          path,
          ranks_text(ranks),
          ranks.size() == 1 ? "computes" : "compute");
    case Symptom::kReplicasDisagree:
      return look_at_replicas(tensor, candidate);
    case Symptom::kTypesDiffer:
      return tensor.id.kind == Kind::kOperand
                 ? fmt::format("check the FP8 format of {}", operand_of(tensor.id))
                 : fmt::format("check the precision in which {} is kept", path);
    case Symptom::kCollective:
      return fmt::format(
          "check the communication itself: the arguments of the call on {}, buffers that change "
          "before the wait, and ranks that leave out a call",
          ranks_text(ranks));
    default:
      return fmt::format(fmt::runtime(advice_on(tensor.symptom())), path);
  }
}

std::string look_at_optimizer(std::span<const TensorVerdict> tensors, const TensorId& id) {
  const auto state = [&](Kind kind) { return state_of(tensors, id, kind); };
  switch (id.kind) {
    case Kind::kMainGrad:
      return fmt::format(
          "check how the gradient of {} is reduced and accumulated between backward and optimizer; "
          "{}",
          id.path,
          state(Kind::kParamGrad));
    case Kind::kExpAvg:
    case Kind::kExpAvgSq:
      return fmt::format(
          "check the optimizer's moments of {}, and clipping; {}", id.path, state(Kind::kMainGrad));
    case Kind::kMaster:
      return fmt::format("check the optimizer's update of {}; {}; {}",
                         id.path,
                         state(Kind::kExpAvg),
                         state(Kind::kExpAvgSq));
    default:
      return fmt::format("check the update of {} and its copy back from the master; {}",
                         id.path,
                         state(Kind::kMaster));
  }
}

}  // namespace

std::string where_to_look(std::span<const TensorVerdict> tensors,
                          std::size_t index,
                          const Trace& candidate) {
  const TensorVerdict& tensor = tensors[index];
  const TensorId& id = tensor.id;
  if (std::string structure = look_at_structure(tensor, candidate); !structure.empty()) {
    return structure;
  }
  const std::string before = predecessor(tensors, index);
  switch (id.kind) {
    case Kind::kData:
      return "check the order of the samples and the global number of the micro-batch, which is "
             "i * dp + dp_rank for the i-th local one";
    case Kind::kParam:
      return id.step == 0 ? fmt::format("check how the candidate loads {} at the start", id.path)
                          : fmt::format("check the update of {} in the step before", id.path);
    case Kind::kGradOutput:
      return fmt::format("check the backward of the modules that consume the output of {}; {}",
                         id.path,
                         next_modules(tensors, id));
    case Kind::kGradInput:
      return fmt::format("check the backward of {} with respect to its input", id.path);
    case Kind::kParamGrad:
      return fmt::format(
          "check the backward of {} with respect to {}", module_of(id.path), id.path);
    case Kind::kMainGrad:
    case Kind::kExpAvg:
    case Kind::kExpAvgSq:
    case Kind::kMaster:
    case Kind::kParamNext:
      return look_at_optimizer(tensors, id);
    case Kind::kLoss:
      return "check the loss; " + before;
    case Kind::kRouting:
      return fmt::format(
          "check the scores, their bias and the choice of experts in {}; {}", id.path, before);
    case Kind::kScalar:
      return fmt::format(
          "check how the candidate computes {}; no tensor that was recorded before it diverges",
          id.path);
    case Kind::kScale:
    case Kind::kAmaxHistory:
      return fmt::format(
          "check how the scale of {} follows from the largest magnitudes: from which steps, and on "
          "which ranks; {}",
          operand_of(id),
          before);
    case Kind::kOperand:
      return fmt::format(
          "check how {} becomes codes: its scale, the rounding, and what happens to the codes "
          "before the product; {}",
          operand_of(id),
          before);
    case Kind::kInput:
      return fmt::format("check what feeds {}; {}", id.path, before);
    default:
      return fmt::format("check the forward of {}; {}", id.path, before);
  }
}

}  // namespace ttrace
