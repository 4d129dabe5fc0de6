// ttrace_reference: trains the reference model and prints a line per step.
#include "config.h"
#include "device.h"
#include "trainer.h"

#include <ttrace/error.h>

#include <boost/program_options.hpp>

#include <exception>
#include <iomanip>
#include <iostream>

namespace po = boost::program_options;

namespace ttrace::reference {
namespace {

po::options_description options() {
  po::options_description result("Usage: ttrace_reference --config FILE [options]\n\nOptions");
  // clang-format off
  result.add_options()
      ("config", po::value<std::string>()->value_name("FILE"), "configuration of the run, in YAML (examples/tiny.yaml explains its keys)")
      ("precision", po::value<std::string>()->value_name("P"), "precision (f64, f32, bf16 or fp8), instead of the configuration's")
      ("seed", po::value<std::uint64_t>()->value_name("N"), "seed of samples and initial parameters, instead of data.seed")
      ("micro-batches", po::value<std::int64_t>()->value_name("N"), "number of micro-batches per step, instead of data.micro_batches")
      ("steps", po::value<std::int64_t>()->value_name("N")->default_value(1), "number of steps to train")
      ("annotations", po::value<std::string>()->value_name("FILE")->default_value(TTRACE_REFERENCE_ANNOTATIONS, "gpt.ttrace.yaml"), "annotation file with the dims of the traced tensors")
      ("device", po::value<std::string>()->value_name("TYPE")->default_value("cpu"), "type of the device that everything is computed on: cpu or cuda")
      ("digest", "also print a digest of loss, main gradients and updated parameters for each step")
      ("help", "print this text");
  // clang-format on
  return result;
}

Config configure(const po::variables_map& arguments) {
  TTRACE_CHECK(arguments.contains("config"), UsageError, "--config FILE is missing");
  Config config = load_config(arguments["config"].as<std::string>());
  if (arguments.contains("precision")) {
    config.precision = parse_precision(arguments["precision"].as<std::string>());
  }
  if (arguments.contains("seed")) {
    config.data.seed = arguments["seed"].as<std::uint64_t>();
  }
  if (arguments.contains("micro-batches")) {
    config.data.micro_batches = arguments["micro-batches"].as<std::int64_t>();
  }
  check(config);
  return config;
}

void train(const po::variables_map& arguments) {
  const auto steps = arguments["steps"].as<std::int64_t>();
  TTRACE_CHECK(steps > 0, UsageError, "--steps is ", steps, "; it must be positive");
  const Config config = configure(arguments);
  const c10::Device device = open_device(arguments["device"].as<std::string>());
  Trainer trainer(config, arguments["annotations"].as<std::string>(), device);
  for (std::int64_t iteration = 0; iteration < steps; ++iteration) {
    const StepResult result = trainer.step(iteration);
    std::cout << "step " << iteration << std::setprecision(9) << " loss " << result.loss
              << " grad_norm " << result.grad_norm;
    if (arguments.contains("digest")) {
      std::cout << " digest " << result.digest;
    }
    std::cout << std::endl;  // a reader waits for the line
  }
}

void run(int count, char** values) {
  po::variables_map arguments;
  po::store(po::command_line_parser(count, values).options(options()).positional({}).run(),
            arguments);
  if (arguments.contains("help")) {
    std::cout << options();
  } else {
    train(arguments);
  }
}

}  // namespace
}  // namespace ttrace::reference

int main(int count, char** values) {
  constexpr int kFailed = 1;
  constexpr int kBadInput = 2;
  try {
    ttrace::reference::run(count, values);
    return 0;
  } catch (const ttrace::Error& error) {
    std::cerr << "ttrace_reference: " << error.message() << "\n";
  } catch (const po::error& error) {
    std::cerr << "ttrace_reference: " << error.what() << "; see --help\n";
  } catch (const std::exception& error) {
    std::cerr << "ttrace_reference: " << error.what() << "\n";
    return kFailed;
  }
  return kBadInput;
}
