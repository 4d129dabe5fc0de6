// Attention computed again in double from the recorded queries, keys and values, at sampled places:
// with another scale of the scores, with a mask that is one token off, without a mask.
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/replay.h"
#include "analysis/causes/common/storage_order.h"
#include "analysis/causes/signatures.h"

#include <boost/math/tools/minima.hpp>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace ttrace {
namespace {

template <class Element>
const Element& at(const std::vector<Element>& list, std::int64_t index) {
  return list[static_cast<std::size_t>(index)];
}

// The parts of the sequence that ranks hold, and where a token lies in them.
struct Parts {
  std::vector<std::vector<std::int64_t>> tokens;       // by part and place in it
  std::vector<std::int64_t> part;                      // by token
  std::vector<std::int64_t> place;                     // by token
  std::vector<std::vector<std::int64_t>> first_place;  // of queries of one part that see another

  [[nodiscard]] bool is_cut() const { return tokens.size() > 1; }
};

// What one side recorded: query [s, b, n, d], key and value [s, b, g, d], output [s, b, n d]. Place
// i is head i % n of the row i / n of [s, b].
struct Attention {
  Values query;
  Values key;
  Values value;
  Values output;
  Parts parts = {};              // of the candidate
  std::int64_t rank_groups = 0;  // groups that one rank of it holds

  [[nodiscard]] std::int64_t tokens() const { return query.shape[0]; }
  [[nodiscard]] std::int64_t samples() const { return query.shape[1]; }
  [[nodiscard]] std::int64_t heads() const { return query.shape[2]; }
  [[nodiscard]] std::int64_t groups() const { return key.shape[2]; }
  [[nodiscard]] std::int64_t width() const { return query.shape[3]; }
};

// What attention does with keys that lie in another rank's part of the sequence.
enum class Elsewhere {
  kRight,
  kUnseen,      // nothing: a rank attends to its own part alone
  kRowNumbers,  // masks them like its own, by their number within the part
  kMisread      // reads [rows, groups] in another order than they are stored in
};

// A token sees those before it, and `ahead` tokens more.
struct Rule {
  double scale = 0.0;
  std::int64_t ahead = 0;
  Elsewhere elsewhere = Elsewhere::kRight;
  Misreading misreading = {};  // of kMisread
};

// None where parts are padded.
Parts parts_of(const Match& query, std::int64_t tokens) {
  Parts parts;
  for (const Shard& shard : query.candidate) {
    const DimPlacement& dim = shard.record->placement.dims.at(0);
    std::vector<std::int64_t> held(static_cast<std::size_t>(dim.local_size), -1);
    for (const Segment& segment : dim.segments) {
      const auto first = held.begin() + segment.local;
      std::iota(first, first + segment.extent, segment.logical);
    }
    if (held.empty() || std::ranges::find(held, -1) != held.end()) {
      return {};
    }
    // Another rank may have the same tokens, of other heads.
    if (std::ranges::find(parts.tokens, held) == parts.tokens.end()) {
      parts.tokens.push_back(std::move(held));
    }
  }
  parts.part.resize(static_cast<std::size_t>(tokens));
  parts.place.resize(static_cast<std::size_t>(tokens));
  for (std::size_t part = 0; part < parts.tokens.size(); ++part) {
    const std::vector<std::int64_t>& own = parts.tokens[part];
    for (std::size_t place = 0; place < own.size(); ++place) {
      parts.part[static_cast<std::size_t>(own[place])] = static_cast<std::int64_t>(part);
      parts.place[static_cast<std::size_t>(own[place])] = static_cast<std::int64_t>(place);
    }
    std::vector<std::int64_t>& first_places = parts.first_place.emplace_back();
    for (const std::vector<std::int64_t>& other : parts.tokens) {
      const std::int64_t first_key = std::ranges::min(other);
      const auto first =
          std::ranges::find_if(own, [&](std::int64_t token) { return token >= first_key; });
      first_places.push_back(first - own.begin());
    }
  }
  return parts;
}

std::optional<Attention> attention_of(const Evidence& evidence, WhichRun run) {
  const TensorId query = as_kind(evidence.finding().id, Kind::kInput);
  TensorId key = query;
  key.slot = 1;
  TensorId value = query;
  value.slot = 2;
  Attention attention{.query = evidence.value(query, run).value_or(Values()),
                      .key = evidence.value(key, run).value_or(Values()),
                      .value = evidence.value(value, run).value_or(Values()),
                      .output = evidence.value(&evidence.match(), run).value_or(Values())};
  const auto& q = attention.query.shape;
  const auto& k = attention.key.shape;
  const bool fits = q.size() == 4 && k.size() == 4 && attention.value.shape == k && q[0] == k[0] &&
                    q[1] == k[1] && q[3] == k[3] && k[2] > 0 && q[2] % k[2] == 0 &&
                    attention.output.shape == std::vector<std::int64_t>{q[0], q[1], q[2] * q[3]};
  if (!fits) {
    return std::nullopt;
  }
  attention.parts = parts_of(*evidence.find(query), q[0]);
  const std::vector<Shard>& keys = evidence.find(key)->candidate;
  const std::int64_t held = keys.empty() ? 0 : keys[0].record->placement.dims.at(2).local_size;
  attention.rank_groups = held > 0 && k[2] % held == 0 ? held : k[2];
  return attention;
}

struct Key {
  std::int64_t token = 0;
  std::int64_t group = 0;
  bool seen = true;
};

// What a query takes for the key of `token` and its own group.
Key key_at(const Attention& attention,
           std::int64_t query,
           std::int64_t token,
           std::int64_t group,
           const Rule& rule) {
  const Parts& parts = attention.parts;
  if (rule.elsewhere == Elsewhere::kRight || at(parts.part, query) == at(parts.part, token)) {
    return {token, group};
  }
  const std::int64_t other = at(parts.part, token);
  const std::int64_t place = at(parts.place, token);
  if (rule.elsewhere == Elsewhere::kMisread) {
    const std::int64_t groups = attention.rank_groups;
    const StoredMatrix stored{at(parts.tokens, other).size(), static_cast<std::size_t>(groups)};
    const MatrixPlace from = rule.misreading.taken_for(
        stored, {static_cast<std::size_t>(place), static_cast<std::size_t>(group % groups)});
    return {at(parts.tokens, other)[from.row],
            group / groups * groups + static_cast<std::int64_t>(from.column)};
  }
  const std::int64_t number =
      at(parts.place, query) - at(at(parts.first_place, at(parts.part, query)), other);
  return {token, group, rule.elsewhere == Elsewhere::kRowNumbers && place <= number};
}

// Appends what `place` makes of the values that it sees.
void append_output(const Attention& attention,
                   std::int64_t place,
                   const Rule& rule,
                   std::vector<double>& outputs) {
  const std::int64_t width = attention.width();
  const std::int64_t sample = place / attention.heads() % attention.samples();
  const std::int64_t token = place / attention.heads() / attention.samples();
  const std::int64_t group = place % attention.heads() / (attention.heads() / attention.groups());
  const double* const query = attention.query.data.data() + place * width;
  std::vector<double> scores;
  std::vector<std::int64_t> rows;  // of keys and values
  const auto seen = std::clamp<std::int64_t>(token + 1 + rule.ahead, 1, attention.tokens());
  for (std::int64_t other = 0; other < seen; ++other) {
    const Key key = key_at(attention, token, other, group, rule);
    if (key.seen) {
      const std::int64_t row =
          (key.token * attention.samples() + sample) * attention.groups() + key.group;
      const double* const k = attention.key.data.data() + row * width;
      rows.push_back(row);
      scores.push_back(rule.scale * std::inner_product(query, query + width, k, 0.0));
    }
  }
  const double highest = std::ranges::max(scores);
  std::ranges::transform(
      scores, scores.begin(), [&](double score) { return std::exp(score - highest); });
  const double total = std::accumulate(scores.begin(), scores.end(), 0.0);
  const std::size_t first = outputs.size();
  outputs.resize(first + static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double* const value = attention.value.data.data() + rows[i] * width;
    for (std::int64_t d = 0; d < width; ++d) {
      outputs[first + static_cast<std::size_t>(d)] += scores[i] / total * value[d];
    }
  }
}

using Places = std::vector<std::int64_t>;

Places sample_places(const Attention& attention) {
  constexpr std::int64_t kScores = 100000;  // all tokens that a place sees, over all places
  const std::int64_t sampled = std::clamp<std::int64_t>(kScores / attention.tokens(), 32, 256);
  const std::int64_t all = attention.tokens() * attention.samples() * attention.heads();
  Places places;
  for (std::int64_t i = 0; i < all; i += std::max<std::int64_t>(1, all / sampled) | 1) {
    places.push_back(i);
  }
  return places;
}

std::vector<double> outputs_at(const Attention& attention, const Places& places, const Rule& rule) {
  std::vector<double> outputs;
  for (const std::int64_t place : places) {
    append_output(attention, place, rule, outputs);
  }
  return outputs;
}

std::vector<double> recorded_at(const Attention& attention, const Places& places) {
  std::vector<double> outputs;
  for (const std::int64_t place : places) {
    const auto first = attention.output.data.begin() + place * attention.width();
    outputs.insert(outputs.end(), first, first + attention.width());
  }
  return outputs;
}

// Over factors of the usual scale from 1/16 to 16.
double best_scale(const Attention& attention, const Places& places) {
  constexpr int kBits = 26;  // of the factor's logarithm
  const std::vector<double> recorded = recorded_at(attention, places);
  const double usual = 1.0 / std::sqrt(static_cast<double>(attention.width()));
  const auto rest = [&](double log2) {
    return distance(outputs_at(attention, places, {usual * std::exp2(log2)}), recorded);
  };
  return usual * std::exp2(boost::math::tools::brent_find_minima(rest, -4.0, 4.0, kBits).first);
}

// Standard error of the factor: residual per number over the slope of the output.
double deviation_of(const Attention& attention, const Places& places, double scale, double rest) {
  constexpr double kStep = 1e-3;
  const auto more = outputs_at(attention, places, {scale * (1.0 + kStep)});
  const auto less = outputs_at(attention, places, {scale * (1.0 - kStep)});
  const double slope = distance(more, less) / (2.0 * kStep);
  return slope > 0.0 ? rest / std::sqrt(static_cast<double>(more.size())) / slope : 0.0;
}

struct OtherRule {
  Rule rule;
  std::string what;
  Signature signature = Signature::kAttention;
};

constexpr std::size_t kOtherScale = 1;  // among the rules

// The usual one, other scales and masks, and what becomes of keys of other ranks' parts.
std::vector<OtherRule> rules_of(const Attention& attention, double scale, double other_scale) {
  std::vector<OtherRule> rules = {
      {{scale}, "every token sees itself and those before it"},
      {{other_scale}, "scores are scaled by a x the reference's scale, a = "},
      {{scale, 1}, "every token sees the next one: the causal mask is one off"},
      {{scale, -1}, "no token sees itself: the causal mask is one off"},
      {{scale, attention.tokens()}, "every token sees all others: there is no causal mask"}};
  if (attention.parts.is_cut()) {
    rules.push_back({{scale, 0, Elsewhere::kUnseen},
                     "no token sees those of another rank's part of the sequence"});
    rules.push_back({{scale, 0, Elsewhere::kRowNumbers},
                     "keys of another rank's part are masked like a rank's own, by their number "
                     "within the part"});
    for (const Misreading& misreading : misreadings(false)) {
      rules.push_back({{scale, 0, Elsewhere::kMisread, misreading},
                       fmt::format("keys and values of another rank's part, {}, are read as {}",
                                   order_text(misreading.stored, "groups"),
                                   order_text(misreading.read, "groups")),
                       Signature::kWrongView});
    }
  }
  return rules;
}

}  // namespace

Hypotheses find_attention(const Evidence& evidence, const Sides&) {
  const TensorId& id = evidence.finding().id;
  if (id.kind != Kind::kOutput || !evidence.vocabulary().is(Role::kAttention, id.path)) {
    return {};
  }
  const auto reference = attention_of(evidence, WhichRun::kReference);
  const auto candidate = attention_of(evidence, WhichRun::kCandidate);
  if (!reference || !candidate || reference->query.shape != candidate->query.shape) {
    return {};
  }
  const Places places = sample_places(*reference);
  const double scale = best_scale(*reference, places);
  const double other_scale = best_scale(*candidate, places);
  const std::vector<OtherRule> rules = rules_of(*candidate, scale, other_scale);
  Replay replay{recorded_at(*reference, places), recorded_at(*candidate, places), {}};
  for (const OtherRule& rule : rules) {
    replay.variants.emplace_back([&](WhichRun run) {
      return outputs_at(run == WhichRun::kCandidate ? *candidate : *reference, places, rule.rule);
    });
  }
  Hypotheses found;
  for (const Replayed& made : other_variants(evidence, replay, reproduce(replay))) {
    const double factor = other_scale / scale;
    const bool is_scale = made.other == kOtherScale;
    std::string what = rules[made.other].what;
    if (is_scale) {
      what += explain_factor(
          evidence, factor, deviation_of(*candidate, places, other_scale, made.rest));
    }
    found.push_back(made.hypothesis(rules[made.other].signature,
                                    is_scale ? 1 : rules.size(),
                                    what,
                                    "query, key and value at sampled places"));
    if (is_scale) {
      found.back().named = {.axes = axes_in(evidence, factor), .factors = {factor}};
      found.back().coefficients = 1.0;
    }
  }
  return found;
}

}  // namespace ttrace
