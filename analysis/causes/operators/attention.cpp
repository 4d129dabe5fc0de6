// Attention computed again in double from the recorded queries, keys and values, at sampled places:
// with another scale of the scores, with a mask that is one token off, without a mask.
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/replay.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <boost/math/tools/minima.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// The parts of the sequence that ranks hold, and where a token lies in them.
struct Parts {
  std::vector<std::vector<std::int64_t>> tokens;  // by part and place in it
  std::vector<std::size_t> part;                  // by token
  std::vector<std::int64_t> place;                // by token
  std::vector<std::vector<std::int64_t>>
      first_place;  // of the queries of one part that see another

  [[nodiscard]] bool is_cut() const { return tokens.size() > 1; }
};

// Of one side: query [s, b, n, d], key and value [s, b, g, d], output [s, b, n d].
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

struct Place {
  std::int64_t token = 0;
  std::int64_t sample = 0;
  std::int64_t head = 0;
};

// What attention does with keys that lie in another rank's part of the sequence.
enum class Elsewhere {
  kRight,
  kUnseen,      // nothing: a rank attends to its own part alone
  kRowNumbers,  // masks them like its own, by their number within the part
  kExchanged    // takes [rows, groups] for [groups, rows]
};

// A token sees those before it, and `ahead` tokens more.
struct Rule {
  double scale = 0.0;
  std::int64_t ahead = 0;
  Elsewhere elsewhere = Elsewhere::kRight;
};

Parts parts_of(const Match& query, std::int64_t tokens) {
  Parts parts;
  std::vector<std::vector<Segment>> cuts;
  parts.part.resize(static_cast<std::size_t>(tokens));
  parts.place.resize(static_cast<std::size_t>(tokens));
  for (const Shard& shard : query.candidate) {
    const DimPlacement& dim = shard.record->placement.dims.at(0);
    if (std::find(cuts.begin(), cuts.end(), dim.segments) != cuts.end()) {
      continue;  // another rank with the same tokens, of other heads
    }
    cuts.push_back(dim.segments);
    std::vector<std::int64_t> held(static_cast<std::size_t>(dim.local_size), -1);
    for (const Segment& segment : dim.segments) {
      for (std::int64_t i = 0; i < segment.extent; ++i) {
        const std::int64_t token = segment.logical + i;
        held[static_cast<std::size_t>(segment.local + i)] = token;
        parts.part[static_cast<std::size_t>(token)] = parts.tokens.size();
        parts.place[static_cast<std::size_t>(token)] = segment.local + i;
      }
    }
    if (std::find(held.begin(), held.end(), -1) != held.end()) {
      return {};  // padded
    }
    parts.tokens.push_back(std::move(held));
  }
  const std::size_t count = parts.tokens.size();
  parts.first_place.assign(count, std::vector<std::int64_t>(count, tokens));
  for (std::size_t part = 0; part < count; ++part) {
    for (std::size_t other = 0; other < count; ++other) {
      const std::int64_t first_key =
          *std::min_element(parts.tokens[other].begin(), parts.tokens[other].end());
      for (const std::int64_t token : parts.tokens[part]) {
        if (token >= first_key) {
          parts.first_place[part][other] = std::min(parts.first_place[part][other],
                                                    parts.place[static_cast<std::size_t>(token)]);
        }
      }
    }
  }
  return parts;
}

std::int64_t groups_of_a_rank(const Match& key, std::int64_t groups) {
  const std::int64_t held =
      key.candidate.empty() ? 0 : key.candidate[0].record->placement.dims.at(2).local_size;
  return held > 0 && groups % held == 0 ? held : groups;
}

std::optional<Attention> attention_of(const Evidence& evidence, WhichRun run) {
  TensorId query = evidence.finding().id;
  query.kind = Kind::kInput;
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
  attention.rank_groups = groups_of_a_rank(*evidence.find(key), k[2]);
  return attention;
}

const double* row_of(const Values& values,
                     std::int64_t token,
                     std::int64_t sample,
                     std::int64_t head) {
  const auto& shape = values.shape;
  return values.data.data() + ((token * shape[1] + sample) * shape[2] + head) * shape[3];
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
           Elsewhere rule) {
  const Parts& parts = attention.parts;
  if (rule == Elsewhere::kRight) {
    return {token, group};
  }
  const std::size_t own = parts.part[static_cast<std::size_t>(query)];
  const std::size_t other = parts.part[static_cast<std::size_t>(token)];
  if (own == other) {
    return {token, group};
  }
  const std::int64_t place = parts.place[static_cast<std::size_t>(token)];
  if (rule == Elsewhere::kExchanged) {
    const std::int64_t groups = attention.rank_groups;
    const std::int64_t at = group % groups * std::ssize(parts.tokens[other]) + place;
    return {parts.tokens[other][static_cast<std::size_t>(at / groups)],
            group / groups * groups + at % groups};
  }
  const std::int64_t number =
      parts.place[static_cast<std::size_t>(query)] - parts.first_place[own][other];
  return {token, group, rule == Elsewhere::kRowNumbers && place <= number};
}

std::vector<double> output_at(const Attention& attention, const Place& place, const Rule& rule) {
  const std::int64_t group = place.head / (attention.heads() / attention.groups());
  const double* query = row_of(attention.query, place.token, place.sample, place.head);
  const std::int64_t seen =
      std::clamp<std::int64_t>(place.token + 1 + rule.ahead, 1, attention.tokens());
  std::vector<double> scores;
  std::vector<Key> keys;
  for (std::int64_t token = 0; token < seen; ++token) {
    const Key at = key_at(attention, place.token, token, group, rule.elsewhere);
    if (!at.seen) {
      continue;
    }
    keys.push_back(at);
    const double* key = row_of(attention.key, at.token, place.sample, at.group);
    double score = 0.0;
    for (std::int64_t i = 0; i < attention.width(); ++i) {
      score += query[i] * key[i];
    }
    scores.push_back(score * rule.scale);
  }
  const double highest = *std::max_element(scores.begin(), scores.end());
  double total = 0.0;
  std::vector<double> output(static_cast<std::size_t>(attention.width()));
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const double weight = std::exp(scores[k] - highest);
    const double* value = row_of(attention.value, keys[k].token, place.sample, keys[k].group);
    total += weight;
    for (std::size_t i = 0; i < output.size(); ++i) {
      output[i] += weight * value[i];
    }
  }
  for (double& number : output) {
    number /= total;
  }
  return output;
}

std::vector<Place> sample_places(const Attention& attention) {
  constexpr std::int64_t kScores = 100000;  // all tokens that a place sees, over all places
  const std::int64_t sampled = std::clamp<std::int64_t>(kScores / attention.tokens(), 32, 256);
  std::vector<Place> places;
  const std::int64_t all = attention.tokens() * attention.samples() * attention.heads();
  const std::int64_t stride = std::max<std::int64_t>(1, all / sampled) | 1;
  for (std::int64_t i = 0; i < all; i += stride) {
    places.push_back({i / attention.heads() / attention.samples(),
                      i / attention.heads() % attention.samples(),
                      i % attention.heads()});
  }
  return places;
}

using Places = std::vector<Place>;

std::vector<double> outputs_at(const Attention& attention, const Places& places, const Rule& rule) {
  std::vector<double> outputs;
  for (const Place& place : places) {
    const std::vector<double> again = output_at(attention, place, rule);
    outputs.insert(outputs.end(), again.begin(), again.end());
  }
  return outputs;
}

std::vector<double> recorded_at(const Attention& attention, const Places& places) {
  std::vector<double> outputs;
  for (const Place& place : places) {
    const double* const first =
        attention.output.data.data() +
        ((place.token * attention.samples() + place.sample) * attention.heads() + place.head) *
            attention.width();
    outputs.insert(outputs.end(), first, first + attention.width());
  }
  return outputs;
}

double apart(const std::vector<double>& left, const std::vector<double>& right) {
  return distance({{}, left}, {{}, right});
}

// Over factors of the usual scale from 1/16 to 16.
double best_scale(const Attention& attention, const Places& places) {
  constexpr int kBits = 26;  // of the factor's logarithm
  const std::vector<double> recorded = recorded_at(attention, places);
  const double usual = 1.0 / std::sqrt(static_cast<double>(attention.width()));
  const auto rest = [&](double log2) {
    return apart(outputs_at(attention, places, {usual * std::exp2(log2)}), recorded);
  };
  return usual * std::exp2(boost::math::tools::brent_find_minima(rest, -4.0, 4.0, kBits).first);
}

// Standard error of the factor: residual per number over the slope of the output.
double deviation_of(const Attention& attention, const Places& places, double scale, double rest) {
  constexpr double kStep = 1e-3;
  const auto more = outputs_at(attention, places, {scale * (1.0 + kStep)});
  const auto less = outputs_at(attention, places, {scale * (1.0 - kStep)});
  const double slope = apart(more, less) / (2.0 * kStep);
  return slope > 0.0 ? rest / std::sqrt(static_cast<double>(more.size())) / slope : 0.0;
}

struct OtherRule {
  Rule rule;
  const char* what;
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
    rules.push_back({{scale, 0, Elsewhere::kExchanged},
                     "keys and values of another rank's part, [rows, groups], are read as [groups, "
                     "rows]",
                     Signature::kWrongView});
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
    replay.variants.push_back(
        {rule.what, [&](WhichRun run) {
           return outputs_at(
               run == WhichRun::kCandidate ? *candidate : *reference, places, rule.rule);
         }});
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
    found.push_back(made.hypothesis(
        rules[made.other].signature,
        is_scale ? 1 : rules.size(),
        fmt::format("{}; computed again from the candidate's own query, key and value at sampled "
                    "places, which leaves {} of {}",
                    what,
                    short_number(made.rest),
                    short_number(made.before))));
    if (is_scale) {
      found.back().named = {.axes = axes_in(evidence, factor), .factors = {factor}};
      found.back().coefficients = 1.0;
    }
  }
  return found;
}

}  // namespace ttrace
