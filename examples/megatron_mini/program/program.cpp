#include "program.h"

#include "../device.h"
#include "../error.h"
#include "../faults/run_facts.h"
#include "../process_group_mpi.h"
#include "../process_group_nccl.h"
#include "../trainer.h"
#include "command_line.h"

#include <ttrace/error.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace {

using megatron_mini::CommunicationBackend;
using megatron_mini::Group;
using megatron_mini::Parallel;
using megatron_mini::Trainer;

constexpr int kBadInput = 2;

// Runs a part of the set-up that communicates nothing. Where it fails on any rank, the first such
// rank says why and false is returned on all of them, so that nobody waits for those who gave up.
bool all_succeed(const Group& world, const std::function<void()>& part) {
  std::optional<std::string> problem;
  try {
    part();
  } catch (const ttrace::Error& error) {
    problem = error.message();
  } catch (const megatron_mini::Error& error) {
    problem = error.what();
  }
  const auto first = megatron_mini::first_rank_with(problem.has_value(), world);
  if (first == world.rank) {
    std::cerr << "megatron_mini: " << *problem << "\n";
  }
  return !first.has_value();
}

void train(Trainer& trainer, const megatron_mini::Options& options, int rank, int digits) {
  trainer.start();
  for (std::int64_t iteration = 0; iteration < options.steps; ++iteration) {
    const auto result = trainer.train_step(iteration);
    if (rank != 0) {
      continue;
    }
    const auto number = static_cast<long long>(iteration);
    std::printf("step %lld loss %.*g grad_norm %.*g\n",
                number,
                digits,
                result.loss,
                digits,
                result.grad_norm);
    if (result.digest) {
      std::printf(
          "step %lld digest %016llx\n", number, static_cast<unsigned long long>(*result.digest));
    }
    std::fflush(stdout);
  }
}

// Of the layers with a TP degree below --tp, by degree. All ranks.
std::map<int, megatron_mini::LayerRanks> layer_ranks_of(megatron_mini::MpiRuntime& runtime,
                                                        const megatron_mini::Options& options) {
  std::map<int, megatron_mini::LayerRanks> result;
  const int rank = runtime.world().rank;
  const int tp_rank = rank % options.tp;
  const int stage = rank / (options.tp * options.cp * options.dp);
  for (const int degree : options.layer_tp) {
    if (!options.layer_dp || degree == options.tp || result.contains(degree)) {
      continue;
    }
    const std::string number = std::to_string(degree);
    const int free = options.tp / degree;  // ranks that divide the samples
    result[degree] = {.tp = runtime.split("tp" + number, rank / options.tp * free + tp_rank % free),
                      .samples = runtime.split("samples" + number, rank / free),
                      .dp_cp = runtime.split("dp_cp" + number, stage * degree + tp_rank / free)};
  }
  return result;
}

// Rank = ((pp_rank * dp + dp_rank) * cp + cp_rank) * tp + tp_rank; within a stage that is as well
// (edp_rank * ep + ep_rank) * etp + etp_rank. All ranks.
Parallel groups_of(megatron_mini::MpiRuntime& runtime,
                   const megatron_mini::Plan& plan,
                   c10::Device device) {
  const Group& world = runtime.world();
  const megatron_mini::Options& options = plan.options;
  const int replica = options.tp * options.cp;  // ranks of a stage that share a micro-batch
  const int in_stage = replica * options.dp;    // ranks of a stage
  const int stage = world.rank / in_stage;
  const int place = world.rank % in_stage;  // in its stage
  const int tp_rank = world.rank % options.tp;
  const int etp_rank = world.rank % options.etp;
  const int holders = options.etp * options.ep;  // ranks of a stage that hold its experts once
  const bool ties_stages = plan.config.model.tied && options.pp > 1;
  const bool shares_embedding = ties_stages && (stage == 0 || stage == options.pp - 1);
  Parallel parallel{
      .world = world,
      .tp = runtime.split("tp", world.rank / options.tp),
      .cp = runtime.split("cp", world.rank / replica * options.tp + tp_rank),
      .dp = runtime.split("dp", stage * replica + place % replica),
      .dp_cp = runtime.split("dp_cp", stage * options.tp + tp_rank),
      .pp = runtime.split("pp", place),
      .embedding = runtime.split("embedding", shares_embedding ? place : in_stage + world.rank),
      .sequence_parallel = options.sequence_parallel,
      .ties_stages = ties_stages,
      .chunks = options.vpp,
      .first_stage_layers = options.first_stage_layers,
      .last_stage_layers = options.last_stage_layers,
      .zero1 = options.zero1,
      .device = device};
  parallel.layers = layer_ranks_of(runtime, options);
  if (plan.config.model.experts > 1) {
    parallel.etp = runtime.split("etp", world.rank / options.etp);
    parallel.ep = runtime.split("ep", world.rank / holders * options.etp + etp_rank);
    parallel.edp = runtime.split("edp", stage * holders + place % holders);
    parallel.etp_ep = runtime.split("etp_ep", world.rank / holders);
  }
  return parallel;
}

std::shared_ptr<const megatron_mini::Parts> parts_of(const megatron_mini::CommandLine& line) {
  return std::make_shared<const megatron_mini::Parts>(
      megatron_mini::faults::parts_with(line.fault));
}

int run(megatron_mini::MpiRuntime& runtime, int argc, char** argv) {
  const Group& world = runtime.world();
  std::optional<std::string> text;
  std::optional<megatron_mini::Plan> plan;
  c10::Device device = at::kCPU;
  const auto read = [&] {
    auto line = megatron_mini::parse_command_line(argc, argv, world.size);
    text = line.text;
    if (!text) {
      plan = megatron_mini::read_plan(line.options, parts_of(line));
      const auto facts = megatron_mini::faults::facts_of(plan->options, plan->config);
      megatron_mini::faults::check_can_act(line.fault, facts, plan->config.model);
      device = megatron_mini::open_device(line.options.device, runtime.local_rank());
      if (line.options.backend == CommunicationBackend::kNccl) {
        megatron_mini::check_has_nccl();
      }
    }
  };
  if (!all_succeed(world, read)) {
    return kBadInput;
  }
  if (text) {
    std::cout << (world.rank == 0 ? *text : "");
    return 0;
  }
  const megatron_mini::Options options = plan->options;
  runtime.serve(device.type(),
                options.backend == CommunicationBackend::kNccl
                    ? megatron_mini::nccl_backends(runtime)
                    : nullptr);
  const Parallel parallel = groups_of(runtime, *plan, device);
  std::shared_ptr<Trainer> trainer;
  if (!all_succeed(world, [&] { trainer = plan->parts->trainer(*plan, parallel); })) {
    return kBadInput;
  }
  // As many digits as the losses of this precision have.
  const int digits = trainer->precision() == megatron_mini::Precision::kF64 ? 17 : 9;
  train(*trainer, options, world.rank, digits);
  return 0;
}

}  // namespace

int megatron_mini::run_program(int argc, char** argv) {
  try {
    megatron_mini::MpiRuntime runtime(&argc, &argv);
    try {
      return run(runtime, argc, argv);
    } catch (const std::exception& error) {
      std::cerr << "megatron_mini: rank " << runtime.world().rank << ": " << error.what() << "\n";
      throw;  // the runtime's destructor ends the job
    }
  } catch (...) {
    return 1;
  }
}
