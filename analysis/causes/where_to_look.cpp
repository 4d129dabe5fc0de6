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
    if (tensor.status() != Status::kIncomplete && tensor.status() != Status::kBehindFlip &&
        tensor.id.step == id.step && tensor.id.kind == kind && tensor.id.path == id.path) {
      (tensor.status() == Status::kWithin ? within : beyond) += 1;
    }
  }
  const std::string name = std::string(name_of(kind)) + " of " + id.path;
  if (within + beyond == 0) {
    return "no " + name + " was recorded";
  }
  if (beyond > 0) {
    return counted(beyond, "record", "records") + " of " + name + " diverge as well";
  }
  return "its " + counted(within, "record", "records") + " of " + std::string(name_of(kind)) +
         (within == 1 ? " is" : " are") + " within bound";
}

// What is known of a tensor before the first divergence, which need not be within its bound.
std::string_view standing_of(const TensorVerdict& tensor) {
  if (tensor.allowed() && tensor.status() != Status::kWithin) {
    return "is not judged, because the user allowed it to differ";
  }
  switch (tensor.status()) {
    case Status::kWithin:
      return "is within bound";
    case Status::kInherited:
      return "is beyond its bound, but its own operators are right: it inherited the error";
    case Status::kBehindFlip:
      return "differs behind another choice of experts, where no bound applies";
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
      return fmt::format("; the forward record before it, {}, {}",
                         to_string(tensors[i].id),
                         standing_of(tensors[i]));
    }
  }
  return "; no forward record of its micro-batch comes before it";
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
    return "no later module was recorded, so from there to the loss";
  }
  return "next in forward order: " + paths.front() + (paths.size() > 1 ? ", " + paths[1] : "");
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
    for (std::size_t i = 0; i < two.axes.size(); ++i) {
      who +=
          (i == 0 ? ", and ranks " + std::to_string(two.left) + " and " +
                        std::to_string(two.right) + ", which do not, differ in their coordinate on "
                  : " and ") +
          two.axes[i];
    }
  }
  switch (tensor.id.kind) {
    case Kind::kParamGrad:
    case Kind::kMainGrad:
      return "the reduction of " + tensor.id.path + "'s gradient between ranks: " + who;
    case Kind::kParam:
    case Kind::kMaster:
    case Kind::kParamNext:
    case Kind::kExpAvg:
    case Kind::kExpAvgSq:
      return "how " + tensor.id.path + " is kept equal between ranks: " + who;
    case Kind::kGradOutput:
      return "the backward of what consumes " + tensor.id.path + "'s output: " + who;
    case Kind::kOperand:
      return "which codes and which scale each rank uses for " + operand_of(tensor.id) + "; " + who;
    case Kind::kScale:
    case Kind::kAmaxHistory:
      return "how ranks share the largest magnitude that the scale of " + operand_of(tensor.id) +
             " follows from: " + who;
    default:
      return "what is not the same on all ranks in " + tensor.id.path +
             ": its input, its parameters, its communication or its random numbers; " + who;
  }
}

std::string look_at_structure(const TensorVerdict& tensor, const Trace& candidate) {
  const std::vector<int> ranks = tensor.ranks();
  switch (tensor.symptom()) {
    case Symptom::kMissing:
      return tensor.status() == Status::kMissingInCandidate
                 ? "whether the candidate runs " + tensor.id.path +
                       " in this micro-batch and under this name; the notes of its ranks may say "
                       "why "
                       "it is missing"
                 : "whether the reference has " + tensor.id.path +
                       " under another name, step or micro-batch";
    case Symptom::kShapesDiffer:
      if (tensor.id.kind == Kind::kData) {
        return "whether both programs cut the step into as many micro-batches of as many samples; "
               "if they do, the annotation (dims) of " +
               tensor.id.path;
      }
      [[fallthrough]];
    case Symptom::kRanksContradict:
    case Symptom::kGap:
    case Symptom::kOverlap:
    case Symptom::kAddendsMissing:
      return "where the ranks' pieces of " + tensor.id.path +
             " lie, by its annotation (dims) or the rows (tokens) that its program names; then "
             "what " +
             ranks_text(ranks) + (ranks.size() == 1 ? " computes" : " compute") + " there";
    case Symptom::kReplicasDisagree:
      return look_at_replicas(tensor, candidate);
    case Symptom::kTypesDiffer:
      return tensor.id.kind == Kind::kOperand
                 ? "the FP8 format of " + operand_of(tensor.id)
                 : "the precision in which " + tensor.id.path + " is kept";
    case Symptom::kRowsDiffer:
      return "what chooses the rows of " + tensor.id.path +
             ": the router, and the exchange of tokens";
    case Symptom::kMessage:
      return "the messages of " + tensor.id.path +
             " between pipeline stages: their order, buffers that are reused too early, and "
             "whether "
             "the ranks wait for them";
    case Symptom::kCollective:
      return "the communication itself: the call's arguments on " + ranks_text(ranks) +
             ", buffers that change before the wait, and ranks that leave out a call";
    case Symptom::kSource:
      return "what lies between " + tensor.id.path +
             " and the module before it: copies, gathers, buffers that are reused, values "
             "overwritten in place";
    case Symptom::kTooAccurate:
      return "the precision recipe of " + tensor.id.path +
             ": whether autocast or FP8 is active there, and in everything that feeds it";
    case Symptom::kTooCoarse:
      return "the precision in which " + tensor.id.path +
             " and everything that feeds it compute, add up and communicate";
    case Symptom::kRecompute:
      return "what differs when " + tensor.id.path +
             " runs again in backward: random state, casts, values overwritten in place";
    default:
      return "";
  }
}

std::string look_at_optimizer(std::span<const TensorVerdict> tensors, const TensorId& id) {
  switch (id.kind) {
    case Kind::kMainGrad:
      return "the reduction and accumulation of " + id.path +
             "'s gradient between backward and optimizer: " +
             state_of(tensors, id, Kind::kParamGrad);
    case Kind::kExpAvg:
    case Kind::kExpAvgSq:
      return "the optimizer's moments of " + id.path +
             ", clipping included: " + state_of(tensors, id, Kind::kMainGrad);
    case Kind::kMaster:
      return "the optimizer's update of " + id.path + ": " + state_of(tensors, id, Kind::kExpAvg) +
             ", " + state_of(tensors, id, Kind::kExpAvgSq);
    default:
      return "the update of " + id.path +
             " and its copy back from the master: " + state_of(tensors, id, Kind::kMaster);
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
  switch (id.kind) {
    case Kind::kData:
      return "the order of the samples and the global number of the micro-batch, "
             "i * dp + dp_rank for the i-th local one";
    case Kind::kParam:
      return id.step == 0 ? "how the candidate loads " + id.path + " at the start"
                          : "the update of " + id.path + " in the step before";
    case Kind::kGradOutput:
      return "the backward of what consumes " + id.path + "'s output; " + next_modules(tensors, id);
    case Kind::kGradInput:
      return "the backward of " + id.path + " with respect to its input";
    case Kind::kParamGrad:
      return "the backward of " + module_of(id.path) + " with respect to " + id.path;
    case Kind::kMainGrad:
    case Kind::kExpAvg:
    case Kind::kExpAvgSq:
    case Kind::kMaster:
    case Kind::kParamNext:
      return look_at_optimizer(tensors, id);
    case Kind::kLoss:
      return "the loss" + predecessor(tensors, index);
    case Kind::kRouting:
      return "the scores, their bias and the choice of experts in " + id.path +
             predecessor(tensors, index);
    case Kind::kScalar:
      return "how the candidate computes " + id.path +
             "; no tensor that was recorded before it diverges";
    case Kind::kScale:
    case Kind::kAmaxHistory:
      return "how the scale of " + operand_of(id) +
             " follows from largest magnitudes, of which steps and on which ranks" +
             predecessor(tensors, index);
    case Kind::kOperand:
      return "how " + operand_of(id) +
             " becomes codes: its scale, the rounding, and what happens to the codes between there "
             "and the product" +
             predecessor(tensors, index);
    case Kind::kInput:
      return "what feeds " + id.path + predecessor(tensors, index);
    default:
      return "the forward of " + id.path + predecessor(tensors, index);
  }
}

}  // namespace ttrace
