#include "hooks/base/environment.h"

#include "trace/base/parse_integer.h"
#include "trace/base/precision.h"

#include <ttrace/error.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace ttrace {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

[[noreturn]] void refuse(const char* name, const std::string& value, std::string_view expected) {
  TTRACE_THROW(UsageError, name, " is '", value, "'; set it to ", expected);
}

// Also with leading zeros.
std::optional<std::int64_t> parse_natural(std::string_view text) {
  const auto number = parse_number<std::int64_t>(text);
  return number.value_or(-1) < 0 ? std::nullopt : number;
}

// By the number of Pass.
constexpr std::array<std::string_view, 5> kPasses{
    "reference", "candidate", "noise", "forced", "golden"};

Pass parse_pass(const std::string& value) {
  const auto* const found = std::ranges::find(kPasses, value);
  if (found == kPasses.end()) {
    refuse("TTRACE_PASS", value, "reference, candidate, noise, forced or golden");
  }
  return static_cast<Pass>(found - kPasses.begin());
}

void parse_steps(const std::string& value, Environment& result) {
  if (value.empty()) {
    return;
  }
  std::vector<std::optional<std::int64_t>> numbers;
  for (std::string_view rest = value;;) {
    const std::size_t colon = rest.find(':');
    numbers.push_back(parse_natural(rest.substr(0, colon)));
    if (colon == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(colon + 1);
  }
  const bool are_numbers =
      numbers.size() <= 3 && std::ranges::all_of(numbers, &std::optional<std::int64_t>::has_value);
  if (!are_numbers || (numbers.size() > 1 && *numbers[1] <= *numbers[0]) ||
      (numbers.size() > 2 && *numbers[2] == 0)) {
    refuse(
        "TTRACE_STEPS",
        value,
        "FIRST:LAST without LAST and with FIRST below LAST, FIRST:LAST:N for every Nth of these, "
        "or one number");
  }
  result.first_step = *numbers[0];
  result.last_step = numbers.size() > 1 ? *numbers[1] : *numbers[0] + 1;
  result.every = numbers.size() > 2 ? *numbers[2] : 1;
}

// The value of a variable that has two words; `other` is what `chosen` is not.
bool parse_choice(const char* name, const char* other, const char* chosen) {
  const std::string value = variable(name);
  if (!value.empty() && value != other && value != chosen) {
    refuse(name, value, std::string(other) + " or " + chosen);
  }
  return value == chosen;
}

void parse_ring(Environment& result) {
  constexpr std::int64_t kSmallest = 4096;
  const std::string value = variable("TTRACE_RING_BYTES");
  if (value.empty()) {
    return;
  }
  const auto bytes = parse_natural(value);
  if (!bytes || *bytes < kSmallest) {
    refuse("TTRACE_RING_BYTES", value, "a number of bytes, at least 4096");
  }
  result.ring_bytes = static_cast<std::size_t>(*bytes);
}

void parse_filter(Environment& result) {
  result.filter_text = variable("TTRACE_FILTER");
  if (!result.filter_text.empty()) {
    result.filter.emplace("TTRACE_FILTER", result.filter_text);
  }
}

void require(const char* name, const std::string& value, Pass pass, std::string_view meaning) {
  TTRACE_CHECK(!value.empty(),
               UsageError,
               "TTRACE_PASS=",
               name_of(pass),
               " needs ",
               name,
               ", which names ",
               meaning,
               "; set it");
}

void check_pass(Environment& result) {
  TTRACE_CHECK(result.candidate.empty() || result.pass != Pass::kCandidate,
               UsageError,
               "TTRACE_CANDIDATE='",
               result.candidate,
               "' makes a reference or noise pass use a candidate's routing, but a candidate uses "
               "its own; unset it");
  if (result.pass == Pass::kForced) {
    require("TTRACE_CANDIDATE",
            result.candidate,
            result.pass,
            "the trace whose values replace the reference's own");
  }
  if (result.pass == Pass::kGolden) {
    require("TTRACE_REFERENCE",
            result.reference,
            result.pass,
            "the trace whose parameters the pass starts from");
  }
  if (result.pass != Pass::kNoise) {
    require("TTRACE_DIR", result.directory, result.pass, "the folder of the trace to write");
    return;
  }
  require("TTRACE_REFERENCE", result.reference, result.pass, "the reference's trace");
  const std::string seed = variable("TTRACE_NOISE_SEED");
  const auto number = parse_natural(seed);
  if (!number || *number > 99999) {
    refuse("TTRACE_NOISE_SEED", seed, "a number from 1 to 99999, or to 0 to repeat the reference");
  }
  result.noise_seed = static_cast<int>(*number);
}

void check_dyadic(const Environment& result) {
  if (!result.dyadic) {
    return;
  }
  TTRACE_CHECK(
      result.pass != Pass::kNoise && result.pass != Pass::kForced,
      UsageError,
      "TTRACE_INPUTS=dyadic is for reference, golden and candidate passes, but TTRACE_PASS is ",
      name_of(result.pass),
      "; unset one of them");
  if (result.pass == Pass::kCandidate) {
    require("TTRACE_REFERENCE",
            result.reference,
            result.pass,
            "the trace that states which values were replaced");
  }
}

// The results of a zoom are compared element by element.
void parse_keep(Environment& result) {
  const std::string text = variable("TTRACE_KEEP");
  const std::optional<Keep> keep = text.empty() ? Keep::kBytes : find_keep(text);
  if (!keep) {
    refuse("TTRACE_KEEP", text, "bytes or sketch");
  }
  result.keeping.keep = result.zoom ? Keep::kBytes : *keep;
  if (const std::string elements = variable("TTRACE_ELEMENTS"); !elements.empty()) {
    result.keeping.elements.emplace("TTRACE_ELEMENTS", elements);
  }
}

}  // namespace

std::string_view name_of(Pass pass) {
  return kPasses.at(static_cast<std::size_t>(pass));
}

std::vector<std::int64_t> Environment::steps() const {
  std::vector<std::int64_t> result;
  for (std::int64_t step = first_step; step < last_step; step += every) {
    result.push_back(step);
  }
  return result;
}

std::optional<Environment> read_environment() {
  const std::string pass = variable("TTRACE_PASS");
  if (pass.empty()) {
    return std::nullopt;
  }
  Environment result;
  result.pass = parse_pass(pass);
  result.directory = variable("TTRACE_DIR");
  result.reference = variable("TTRACE_REFERENCE");
  result.candidate = variable("TTRACE_CANDIDATE");
  result.settled = variable("TTRACE_SETTLED");
  result.run = variable("TTRACE_RUN");
  check_pass(result);
  parse_steps(variable("TTRACE_STEPS"), result);
  result.precision = variable("TTRACE_PRECISION");
  if (!result.precision.empty() && find_precision(result.precision) == nullptr) {
    refuse("TTRACE_PRECISION", result.precision, precision_names());
  }
  result.own_start = parse_choice("TTRACE_START", "reference", "own");
  result.dyadic = parse_choice("TTRACE_INPUTS", "own", "dyadic");
  check_dyadic(result);
  parse_filter(result);
  result.named = parse_choice("TTRACE_NAMED", "0", "1");
  result.collectives = parse_choice("TTRACE_COLLECTIVES", "0", "1");
  if (const std::string zoom = variable("TTRACE_ZOOM"); !zoom.empty()) {
    result.zoom = parse_zoom_target(zoom);
  }
  parse_keep(result);
  result.count_only = parse_choice("TTRACE_COUNT", "0", "1");
  TTRACE_CHECK(!result.count_only || result.pass != Pass::kNoise,
               UsageError,
               "TTRACE_COUNT=1 counts what a reference or candidate pass would write, but a noise "
               "pass writes one row per tensor; unset it");
  result.raise = parse_choice("TTRACE_ON_ERROR", "warn", "raise");
  result.blocking_copies = parse_choice("TTRACE_SYNC", "async", "stream");
  parse_ring(result);
  return result;
}

}  // namespace ttrace
