#include "mini_program.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

namespace megatron_mini::testing {

namespace {

// Small enough for a step in some hundredths of a second, divisible by four ranks.
std::map<std::string, std::string> default_values() {
  return {{"model.layers", "2"},
          {"model.hidden", "64"},
          {"model.heads", "8"},
          {"model.query_groups", "4"},
          {"model.ffn", "96"},
          {"model.vocabulary", "257"},
          {"model.sequence", "32"},
          {"model.activation", "swiglu"},
          {"model.tied", "false"},
          {"model.rotary_base", "10000"},
          {"model.norm_epsilon", "1.0e-5"},
          {"data.file", "text.txt"},
          {"data.seed", "1"},
          {"data.micro_batch_size", "2"},
          {"data.micro_batches", "4"},
          {"optimizer.learning_rate", "1.0e-3"},
          {"optimizer.beta1", "0.9"},
          {"optimizer.beta2", "0.95"},
          {"optimizer.epsilon", "1.0e-8"},
          {"optimizer.weight_decay", "0.1"},
          {"optimizer.clip", "1.0"},
          {"precision", "bf16"}};
}

}  // namespace

MiniProgram::MiniProgram(const ConfigChange* first, const ConfigChange* last) {
  auto values = default_values();
  for (; first != last; ++first) {
    values[first->key] = first->value;
  }
  std::ofstream file(config());
  std::string open;
  for (const auto& [key, value] : values) {  // sorted, so that sections stay together
    const auto dot = key.find('.');
    if (dot == std::string::npos) {
      continue;
    }
    if (key.substr(0, dot) != open) {
      open = key.substr(0, dot);
      file << open << ":\n";
    }
    file << "  " << key.substr(dot + 1) << ": " << value << "\n";
  }
  for (const auto& [key, value] : values) {
    if (key.find('.') == std::string::npos) {
      file << key << ": " << value << "\n";
    }
  }

  std::ofstream out(text());
  for (int line = 0; line < 200; ++line) {
    out << "Mile " << line << ": the river is " << line * line % 97 << " feet wide here.\n";
  }
}

ttrace::testing::ProcessResult MiniProgram::run(int ranks,
                                                const std::string& arguments,
                                                const std::string& program) const {
  std::vector<std::string> command = {program, "--config", config()};
  std::istringstream words(arguments);
  for (std::string word; words >> word;) {
    command.push_back(word);
  }
  return run_ranks(ranks, command);
}

std::vector<PrintedStep> parse_steps(const std::string& output) {
  std::vector<PrintedStep> steps;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string step;
    std::string what;
    std::string value;
    std::size_t number = 0;
    words >> step >> number >> what >> value;
    if (step != "step") {
      continue;
    }
    steps.resize(number + 1);
    if (what == "digest") {
      steps[number].digest = value;
      continue;
    }
    std::string norm;
    words >> what >> norm;
    steps[number].loss = std::stod(value);
    steps[number].grad_norm = std::stod(norm);
  }
  return steps;
}

std::vector<PrintedStep> steps_of(const MiniProgram& program,
                                  int ranks,
                                  const std::string& arguments) {
  const auto result = program.run(ranks, arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return parse_steps(result.out);
}

std::ostream& operator<<(std::ostream& out, const RankLayout& layout) {
  return out << layout.flags;
}

void expect_equal(const std::vector<PrintedStep>& parallel,
                  const std::vector<PrintedStep>& single,
                  double tolerance) {
  ASSERT_EQ(parallel.size(), single.size());
  for (std::size_t i = 0; i < single.size(); ++i) {
    EXPECT_NEAR(parallel[i].loss, single[i].loss, tolerance * single[i].loss);
    EXPECT_NEAR(parallel[i].grad_norm, single[i].grad_norm, tolerance * single[i].grad_norm);
  }
}

void expect_the_single_ranks_steps(const MiniProgram& program,
                                   const std::vector<RankLayout>& layouts,
                                   int steps) {
  const std::string arguments = "--precision f64 --steps " + std::to_string(steps) + " ";
  const auto single = steps_of(program, 1, arguments);
  ASSERT_EQ(single.size(), static_cast<std::size_t>(steps));
  for (const auto& layout : layouts) {
    SCOPED_TRACE(layout.name);
    expect_equal(steps_of(program, layout.ranks, arguments + layout.flags), single, 1e-12);
  }
}

ttrace::testing::ProcessResult run_ranks(int ranks, const std::vector<std::string>& command) {
  ttrace::testing::ProcessOptions options;
  if (ranks > 1) {
    options.arguments = {std::string(MEGATRON_MINI_FOLDER) + "/run_ranks", std::to_string(ranks)};
  }
  options.arguments.insert(options.arguments.end(), command.begin(), command.end());
  return ttrace::testing::run_process(options);
}

}  // namespace megatron_mini::testing
