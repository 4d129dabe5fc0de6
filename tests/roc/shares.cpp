#include "roc/shares.h"

#include "roc/svg.h"
#include "trace/sums/squared.h"

#include <boost/math/distributions/fisher_f.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string_view>
#include <vector>

namespace ttrace::roc {
namespace {

constexpr double kBin = 0.05;

struct Line {
  Question question;
  std::string_view words;
  std::string_view colour;
};
constexpr auto kLines = std::to_array<Line>({
    {Question::kWhole, "T2, whole tensors", "#0b6e4f"},
    {Question::kPart, "T2, worst parts", "#1f4e9c"},
    {Question::kFactor, "T2, factors", "#6a3d9a"},
    {Question::kOperator, "T1, whole tensors", "#e08214"},
    {Question::kOperatorPart, "T1, worst parts", "#d6604d"},
    {Question::kOperatorFactor, "T1, factors", "#7f7f7f"},
});

// The plot: shares to the right, parts of all checks downwards, by decades.
constexpr double kSharesLeft = 70.0;
constexpr double kSharesTop = 40.0;
constexpr double kSharesWidth = 500.0;
constexpr double kSharesHeight = 300.0;
constexpr double kDecades = 6.0;

double across(std::size_t bin) {
  return kSharesLeft + kSharesWidth * kBin * static_cast<double>(bin) / 1.2;
}

double down(double part) {
  return kSharesTop + kSharesHeight * std::min(1.0, -std::log10(part) / kDecades);
}

void draw_axes(std::ostream& out) {
  for (int tenth = 0; tenth <= 12; tenth += 2) {
    const double x = across(static_cast<std::size_t>(2 * tenth));
    out << "<path d=\"M" << x << ' ' << kSharesTop << 'V' << kSharesTop + kSharesHeight
        << "\" stroke=\"" << (tenth == 10 ? "#000" : "#ddd") << "\"/>\n"
        << text_at(x,
                   kSharesTop + kSharesHeight + 16.0,
                   std::to_string(tenth / 10) + "." + std::to_string(tenth % 10),
                   "middle");
  }
  for (int decade = 0; decade <= static_cast<int>(kDecades); ++decade) {
    const double y = down(std::pow(10.0, -decade));
    out << "<path d=\"M" << kSharesLeft << ' ' << y << 'h' << kSharesWidth
        << "\" stroke=\"#ddd\"/>\n"
        << text_at(kSharesLeft - 8.0,
                   y + 4.0,
                   decade == 0 ? "1" : "1e-" + std::to_string(decade),
                   "end");
  }
}

void draw_curve(std::ostream& out,
                std::span<const double> counts,
                double all,
                std::string_view colour,
                bool is_dashed) {
  out << "<path fill=\"none\" stroke-width=\"2\" stroke=\"" << colour << '"'
      << (is_dashed ? " stroke-dasharray=\"4 4\"" : "") << " d=\"";
  const char* step = "M";
  for (std::size_t bin = 0; bin < counts.size(); ++bin) {
    const double part = counts[bin] / all;
    if (part < std::pow(10.0, -kDecades)) {
      break;
    }
    out << step << across(bin) << ' ' << down(part);
    step = "L";
  }
  out << "\"/>\n";
}

}  // namespace

void Shares::add(const Check& check, double parts, Curve& curve) {
  const boost::math::fisher_f_distribution<double> ratio(check.term(Term::kFreedom),
                                                         check.term(Term::kFreedomOfEstimate));
  const double limit = check.term(Term::kLimit);
  const double share = std::abs(check.share());
  ++curve.checks;
  curve.largest = std::max(curve.largest, share);
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    const double reached = kBin * static_cast<double>(bin);
    const double beyond =
        boost::math::cdf(boost::math::complement(ratio, squared(reached * limit)));
    curve.observed[bin] += share >= reached ? 1.0 : 0.0;
    curve.expected[bin] += -std::expm1(parts * std::log1p(-std::min(beyond, 1.0 - 1e-16)));
  }
}

void Shares::add(const Report& clean) {
  for (const TensorVerdict& tensor : clean.tensors) {
    const Check* const whole = tensor.find(Question::kWhole);
    for (const Line& line : kLines) {
      const Check* const check = tensor.find(line.question);
      if (check == nullptr || !check->find(Term::kFreedom) || !(check->bound > 0.0) ||
          !std::isfinite(check->bound)) {
        continue;
      }
      const bool is_of_parts =
          line.question == Question::kPart || line.question == Question::kOperatorPart;
      const auto by_chance = whole == nullptr ? std::nullopt : whole->find(Term::kByChance);
      const double parts =
          is_of_parts && by_chance ? *by_chance / check->term(Term::kByChance) : 1.0;
      add(*check, parts, curves_[line.question]);
    }
  }
}

nlohmann::ordered_json Shares::json() const {
  nlohmann::ordered_json result = nlohmann::ordered_json::object();
  for (const auto& [question, curve] : curves_) {
    result[std::string(name_of(question))] = {{"checks", curve.checks},
                                              {"largest", curve.largest},
                                              {"bin", kBin},
                                              {"observed", curve.observed},
                                              {"expected", curve.expected}};
  }
  return result;
}

std::string Shares::plot() const {
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kSharesLeft + kSharesWidth + 190.0
      << "\" height=\"" << kSharesTop + kSharesHeight + 50.0
      << "\" font-family=\"sans-serif\" font-size=\"12\">\n"
      << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      << text_at(kSharesLeft,
                 20.0,
                 "Part of the checks of clean runs that reach a share of their bound "
                 "(dashed: as the error model expects)",
                 "start");
  draw_axes(out);
  out << text_at(kSharesLeft + kSharesWidth / 2.0,
                 kSharesTop + kSharesHeight + 38.0,
                 "value over bound",
                 "middle");
  double y = kSharesTop + 12.0;
  for (const Line& line : kLines) {
    const auto found = curves_.find(line.question);
    if (found == curves_.end()) {
      continue;
    }
    const Curve& curve = found->second;
    const auto all = static_cast<double>(curve.checks);
    draw_curve(out, curve.observed, all, line.colour, false);
    draw_curve(out, curve.expected, all, line.colour, true);
    out << "<circle cx=\"" << kSharesLeft + kSharesWidth + 16.0 << "\" cy=\"" << y - 4.0
        << "\" r=\"5\" fill=\"" << line.colour << "\"/>\n"
        << text_at(kSharesLeft + kSharesWidth + 28.0, y, line.words, "start");
    y += 20.0;
  }
  out << "</svg>\n";
  return out.str();
}

}  // namespace ttrace::roc
