// Compares a proposed rename map with the one that was written by hand, tensor by tensor.
//
//   ttrace_score_maps REFERENCE CANDIDATE TRUTH PROPOSAL    (traces and maps)
//
// Prints JSON: how many tensors of both programs the proposal has right, asks for, and has wrong,
// and the names of those. A tensor that a program records under several names, with the same values
// and gradients, counts as one: every name of it is right, also where one of them has another order
// of dimensions (an embedding's output before and after a transposition).
#include "analysis/guess/arrangement.h"
#include "analysis/guess/side.h"
#include "analysis/rename/rename_map.h"
#include "trace/file/trace_reader.h"

#include <ttrace/dims.h>
#include <ttrace/error.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <iostream>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

enum class Score { kRight, kAsked, kWrong };

// "o c h=4 w=4 -> o (c*h*w)" and "a b c=3 d=4 -> a (b*c*d)" are the same.
std::string without_names(const std::string& dims) {
  std::map<char, char> letters;
  std::string result;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == '=') {
      while (i + 1 < dims.size() && std::isdigit(static_cast<unsigned char>(dims[i + 1])) != 0) {
        ++i;
      }
    } else if (std::islower(static_cast<unsigned char>(dims[i])) != 0) {
      // A word counts by its first letter; names of several letters differ in it.
      const char next = static_cast<char>('a' + letters.size());
      result += letters.try_emplace(dims[i], next).first->second;
      while (i + 1 < dims.size() && std::islower(static_cast<unsigned char>(dims[i + 1])) != 0) {
        ++i;
      }
    } else {
      result += dims[i];
    }
  }
  return result;
}

class MapScore {
 public:
  MapScore(const GuessSide& reference,
           const GuessSide& candidate,
           const RenameMap& truth,
           const RenameMap& proposal)
      : reference_(reference), candidate_(candidate), truth_(truth), proposal_(proposal) {
    for (const Names names : {Names::kReference, Names::kCandidate}) {
      const GuessSide& own = side(names);
      for (const Unit& unit : own.units()) {
        const auto twin = std::ranges::find_if(own.units(), [&](const Unit& one) {
          return one.id == unit.id || is_same(own, one, unit);
        });
        first_name_[{names, to_string(unit.id)}] = to_string(twin->id);
        names_of_[{names, to_string(twin->id)}].push_back(unit.id);
      }
    }
  }

  [[nodiscard]] Score of(Names names, const Unit& unit) const {
    const Counterparts said = proposal_.find(names, unit.id);
    const auto& others = said.of(other(names));
    if (!others.empty() && std::ranges::none_of(others, [&](const TensorId& id) {
          return side(other(names)).has(id);
        })) {
      return Score::kAsked;
    }
    const auto& twins = names_of_.at({names, first_name_.at({names, to_string(unit.id)})});
    for (const TensorId& twin : twins) {
      if (same(names, unit, said, truth_.find(names, twin))) {
        return Score::kRight;
      }
    }
    // Left out under this name, and paired under another one of the same tensor.
    for (const TensorId& twin : twins) {
      if (others.empty() &&
          same(names, unit, proposal_.find(names, twin), truth_.find(names, unit.id))) {
        return Score::kRight;
      }
    }
    const bool of_module = unit.role == UnitRole::kInput || unit.role == UnitRole::kOutput;
    return of_module && said.reference.size() == 1 && said.candidate.size() == 1 &&
                   is_right_in_order(said)
               ? Score::kRight
               : Score::kWrong;
  }

  // Counterparts that the map written by hand names, and that are no tensor of the other side.
  [[nodiscard]] bool truth_is_sound(Names names, const Unit& unit) const {
    const auto others = truth_.find(names, unit.id).of(other(names));
    return std::ranges::all_of(others,
                               [&](const TensorId& id) { return side(other(names)).has(id); });
  }

 private:
  [[nodiscard]] const GuessSide& side(Names names) const {
    return names == Names::kReference ? reference_ : candidate_;
  }

  [[nodiscard]] static bool equal(const GuessSide& own, const TensorId& one, const TensorId& two) {
    const TensorValues left = own.values(one);
    const TensorValues right = own.values(two);
    return left != nullptr && right != nullptr && left->shape == right->shape &&
           std::ranges::equal(left->bytes, right->bytes);
  }

  [[nodiscard]] static TensorId gradient_of(TensorId id) {
    id.kind = id.kind == Kind::kInput ? Kind::kGradInput : Kind::kGradOutput;
    return id;
  }

  [[nodiscard]] static std::vector<std::int64_t> shape_of(const GuessSide& own,
                                                          const TensorId& id) {
    const auto unit =
        std::ranges::find_if(own.units(), [&](const Unit& one) { return one.id == id; });
    return unit == own.units().end() ? std::vector<std::int64_t>() : unit->shape;
  }

  [[nodiscard]] static bool is_same(const GuessSide& own, const Unit& one, const Unit& two) {
    if (one.role != two.role || one.role == UnitRole::kParameter || !equal(own, one.id, two.id)) {
      return false;
    }
    const TensorId left = gradient_of(one.id);
    const TensorId right = gradient_of(two.id);
    return !own.has(left) || !own.has(right) || equal(own, left, right);
  }

  [[nodiscard]] std::vector<std::string> known_as(Names names,
                                                  const std::vector<TensorId>& ids) const {
    std::vector<std::string> result;
    for (const TensorId& id : ids) {
      const auto found = first_name_.find({names, to_string(id)});
      result.push_back(found == first_name_.end() ? to_string(id) : found->second);
    }
    return result;
  }

  // The same tensor in another order of dimensions, or as it is, and how.
  [[nodiscard]] std::vector<std::pair<TensorId, Arrangement>> orders_of(Names names,
                                                                        const TensorId& id) const {
    const GuessSide& own = side(names);
    std::vector<std::pair<TensorId, Arrangement>> found;
    for (const Unit& unit : own.units()) {
      if (unit.id.kind != id.kind) {
        continue;
      }
      for (const Arrangement& how : arrangements(shape_of(own, id), unit.shape)) {
        const TensorId gradient = gradient_of(id);
        const TensorId other_gradient = gradient_of(unit.id);
        const bool with_gradients = own.has(gradient) && own.has(other_gradient);
        if (is_rearranged(own, id, unit.id, how) &&
            (!with_gradients || is_rearranged(own, gradient, other_gradient, how))) {
          found.emplace_back(unit.id, how);
        }
      }
    }
    return found;
  }

  [[nodiscard]] static bool is_rearranged(const GuessSide& own,
                                          const TensorId& from,
                                          const TensorId& to,
                                          const Arrangement& how) {
    const TensorValues one = own.values(from);
    const TensorValues two = own.values(to);
    return one != nullptr && two != nullptr && varies(*one) &&
           (how.is_same() ? relative_distance(*one, *two)
                          : relative_distance(to_candidate(*one, how), *two)) == 0.0;
  }

  // The places of a tensor's elements, after the arrangements.
  [[nodiscard]] static std::vector<double> places(const std::vector<std::int64_t>& shape,
                                                  const std::vector<Arrangement>& hows) {
    MergeResult tensor;
    tensor.type = ElementType::kF64;
    tensor.shape = shape;
    std::vector<double> numbers(static_cast<std::size_t>(element_count(shape)));
    std::iota(numbers.begin(), numbers.end(), 0.0);
    const auto bytes = std::as_bytes(std::span(numbers));
    tensor.storage.assign(bytes.begin(), bytes.end());
    tensor.bytes = tensor.storage;
    for (const Arrangement& how : hows) {
      if (!how.is_same()) {
        tensor = to_candidate(tensor, how);
      }
    }
    return {numbers_of(tensor).begin(), numbers_of(tensor).end()};
  }

  [[nodiscard]] Arrangement arrangement_of(const RenameMap& map, const Counterparts& of) const {
    const TensorId& id = of.reference.front();
    const DimsPair* const dims =
        map.dims(of, id.kind, Names::kReference, shape_of(reference_, id).size());
    return dims == nullptr || to_string(dims->reference) == to_string(dims->candidate)
               ? Arrangement()
               : Arrangement{to_string(dims->reference), to_string(dims->candidate)};
  }

  // Whether the map written by hand pairs the two tensors, each in one of its orders, so that every
  // element has the same partner.
  [[nodiscard]] bool is_right_in_order(const Counterparts& said) const {
    const auto shape = shape_of(reference_, said.reference.front());
    for (const auto& [reference, first] : orders_of(Names::kReference, said.reference.front())) {
      const Counterparts expected = truth_.find(Names::kReference, reference);
      for (const auto& [candidate, last] : orders_of(Names::kCandidate, said.candidate.front())) {
        if (expected.candidate == std::vector{candidate} &&
            expected.reference == std::vector{reference} &&
            places(shape, {arrangement_of(proposal_, said), last}) ==
                places(shape, {first, arrangement_of(truth_, expected)})) {
          return true;
        }
      }
    }
    return false;
  }

  // The same tensors of both sides, put together and arranged in the same way.
  [[nodiscard]] bool same(Names names,
                          const Unit& unit,
                          const Counterparts& said,
                          const Counterparts& expected) const {
    if (known_as(other(names), said.of(other(names))) !=
            known_as(other(names), expected.of(other(names))) ||
        said.of(names).size() != expected.of(names).size()) {
      return false;
    }
    if (said.of(other(names)).empty()) {
      return true;
    }
    return fusion(proposal_, said) == fusion(truth_, expected) &&
           arrangement(proposal_, said, names, unit) == arrangement(truth_, expected, names, unit);
  }

  [[nodiscard]] static std::vector<std::int64_t> fusion(const RenameMap& map,
                                                        const Counterparts& of) {
    if (of.reference.size() + of.candidate.size() == 2) {
      return {};
    }
    std::vector<std::int64_t> result = map.fusion(*of.rule).ratio;
    result.push_back(map.fusion(*of.rule).groups);
    return result;
  }

  [[nodiscard]] static std::string arrangement(const RenameMap& map,
                                               const Counterparts& of,
                                               Names names,
                                               const Unit& unit) {
    const DimsPair* const dims = map.dims(of, unit.id.kind, names, unit.shape.size());
    if (dims == nullptr || to_string(dims->reference) == to_string(dims->candidate)) {
      return {};
    }
    return without_names(to_string(dims->reference) + " -> " + to_string(dims->candidate));
  }

  const GuessSide& reference_;
  const GuessSide& candidate_;
  const RenameMap& truth_;
  const RenameMap& proposal_;
  std::map<std::pair<Names, std::string>, std::string> first_name_;
  std::map<std::pair<Names, std::string>, std::vector<TensorId>> names_of_;
};

nlohmann::json scores(const std::vector<std::string>& arguments) {
  const Trace reference = Trace::open(arguments[0]);
  const Trace candidate = Trace::open(arguments[1]);
  const RenameMap truth = RenameMap::load(arguments[2]);
  const RenameMap proposal = RenameMap::load(arguments[3]);
  const GuessSide ours(reference);
  const GuessSide theirs(candidate);
  const MapScore score(ours, theirs, truth, proposal);
  nlohmann::json json = {{"right", 0},
                         {"asked", nlohmann::json::array()},
                         {"wrong", nlohmann::json::array()},
                         {"unsound", nlohmann::json::array()}};
  for (const Names side : kBothNames) {
    for (const Unit& unit : (side == Names::kReference ? ours : theirs).units()) {
      const std::string name = std::string(name_of(side)) + " " + to_string(unit.id);
      const Score result = score.of(side, unit);
      if (result == Score::kRight) {
        json["right"] = json["right"].get<int>() + 1;
      } else {
        json[result == Score::kAsked ? "asked" : "wrong"].push_back(name);
      }
      if (!score.truth_is_sound(side, unit)) {
        json["unsound"].push_back(name);
      }
    }
  }
  return json;
}

}  // namespace
}  // namespace ttrace::testing

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments.size() != 4) {
    std::cerr
        << "ttrace_score_maps takes two traces and two maps: REFERENCE CANDIDATE TRUTH PROPOSAL\n";
    return 2;
  }
  try {
    std::cout << ttrace::testing::scores(arguments).dump(1) << '\n';
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "ttrace_score_maps: " << error.what() << '\n';
    return 2;
  }
}
