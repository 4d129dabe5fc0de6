// Bugs of FP8 linears and their quantisers.
#include "../fp8_linear.h"
#include "../recompute.h"
#include "../stage_layers.h"
#include "../straight_through.h"
#include "bug_tables.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace megatron_mini::faults {

namespace {

constexpr char kFp8Qkv[] = "decoder.layers.1.self_attention.linear_qkv";
constexpr char kFp8Fc2[] = "decoder.layers.1.mlp.linear_fc2";

// Where a layer stands among those of this pipeline stage.
struct OwnPlace {
  std::int64_t number = 0;
  int chunk = 0;
};

OwnPlace own_place(const std::string& path, const Blueprint& blueprint) {
  const std::int64_t layer = layer_number(path);
  OwnPlace place;
  for (int chunk = 0; chunk < blueprint.parallel.chunks; ++chunk) {
    const LayerRange range = layers_of(blueprint.model.layers, blueprint.parallel, chunk);
    if (layer >= range.first && layer < range.first + range.count) {
      place.number += layer - range.first;
      place.chunk = chunk;
      break;
    }
    place.number += range.count;
  }
  return place;
}

// Layers that stay BF16 are counted among those of the stage.
void count_own_layers(Parts& parts, const Size& /*size*/) {
  parts.fp8 = [](LinearSplit split, const Blueprint& blueprint, const std::string& path) {
    return computes_in_fp8(blueprint, own_place(path, blueprint).number)
               ? std::make_shared<Fp8Linear>(split, blueprint)
               : nullptr;
  };
}

// Virtual stages but the first of a rank stay BF16.
void leave_out_later_chunks(Parts& parts, const Size& /*size*/) {
  parts.fp8 = [before = parts.fp8](
                  LinearSplit split, const Blueprint& blueprint, const std::string& path) {
    return own_place(path, blueprint).chunk == 0 ? before(split, blueprint, path) : nullptr;
  };
}

// A linear that gathers rows of its input and then takes other values for them.
class Fp8WithRows : public Fp8Linear {
 public:
  Fp8WithRows(const Operands& operands, LinearSplit split, const Blueprint& blueprint)
      : Fp8Linear(operands, blueprint) {
    if (split == LinearSplit::kOutputs && blueprint.parallel.sequence_parallel) {
      rows_ = blueprint.parallel.tp;
    }
  }

 protected:
  // What a rank takes for the rows that it has gathered.
  [[nodiscard]] virtual at::Tensor wrong_rows(const at::Tensor& whole,
                                              const at::Tensor& mine) const = 0;
  at::Tensor gathered(const at::Tensor& whole, const at::Tensor& mine) const override {
    return rows_.size == 1 ? whole : straight_through(whole, wrong_rows(whole, mine));
  }
  [[nodiscard]] const Group& rows() const { return rows_; }

 private:
  Group rows_;  // ranks with other rows of the input
};

// A rank takes its own rows for those of the others.
class RepeatsOwnRows : public Fp8WithRows {
 public:
  RepeatsOwnRows(LinearSplit split, const Blueprint& blueprint)
      : Fp8WithRows(operands_of(split, blueprint.parallel), split, blueprint) {}

 protected:
  at::Tensor wrong_rows(const at::Tensor& /*whole*/, const at::Tensor& mine) const override {
    return mine.detach().repeat({rows().size, 1, 1});
  }
};

// Ranks do not share the amax of rows that they gather: codes of all, times this rank's scale.
class SharesNoAmax : public Fp8WithRows {
 public:
  SharesNoAmax(LinearSplit split, const Blueprint& blueprint)
      : Fp8WithRows(own_amax(split, blueprint.parallel), split, blueprint) {}

 protected:
  Fp8Values quantise(Slot slot, const at::Tensor& tensor, ttrace::Scope& scope) override {
    Fp8Values result = Fp8WithRows::quantise(slot, tensor, scope);
    if (slot == kInput) {
      input_scale_ = result.scale;
    }
    return result;
  }
  at::Tensor wrong_rows(const at::Tensor& whole, const at::Tensor& mine) const override {
    const at::Tensor scales = all_gather(input_scale_.view({1}), rows());
    const at::Tensor factors = (input_scale_ / scales).repeat_interleave(mine.size(0));
    return (whole.detach() * factors.view({-1, 1, 1})).to(whole.scalar_type());
  }

 private:
  static Operands own_amax(LinearSplit split, const Parallel& parallel) {
    Operands operands = operands_of(split, parallel);
    if (split == LinearSplit::kOutputs) {
      operands[kInput].holders = {parallel.cp};
    }
    return operands;
  }

  at::Tensor input_scale_;  // of the latest forward
};

// The formats of forward and backward are exchanged.
class ExchangesFormats : public Fp8Linear {
 public:
  ExchangesFormats(LinearSplit split, const Blueprint& blueprint)
      : Fp8Linear(exchanged(operands_of(split, blueprint.parallel)), blueprint) {}

 private:
  static Operands exchanged(Operands operands) {
    for (Fp8Operand& operand : operands) {
      operand.format = operand.is_gradient ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
    }
    return operands;
  }
};

// A recomputed forward is in BF16.
class RecomputesInBf16 : public Fp8Linear {
 public:
  using Fp8Linear::Fp8Linear;

 protected:
  Fp8Values quantise(Slot slot, const at::Tensor& tensor, ttrace::Scope& scope) override {
    return is_recomputing() ? Fp8Values{.values = tensor, .scale = {}}
                            : Fp8Linear::quantise(slot, tensor, scope);
  }
  void record_operand(Slot slot, const at::Tensor& values, ttrace::Scope& scope) const override {
    if (!is_recomputing()) {
      Fp8Linear::record_operand(slot, values, scope);
    }
  }
};

// Delayed scaling: the scale that would follow from this step as well.
at::Tensor newest_scale(const Fp8Quantiser& quantiser) {
  return quantiser.scale_of(at::maximum(quantiser.history().max(), quantiser.collected()));
}

// As if delayed scales moved after every forward: backward turns the saved codes of the input back
// with the scale that the latest forward has met.
class TurnsBackWithNewestScale : public Fp8Linear {
 public:
  using Fp8Linear::Fp8Linear;

  at::Tensor input(const at::Tensor& tensor, ttrace::Scope& scope) override {
    input_scale_ = newest_scale(*quantisers()[kInput]);
    return Fp8Linear::input(tensor, scope);
  }
  at::Tensor weight(const at::Tensor& tensor, ttrace::Scope& scope) override {
    const at::Tensor factor = Fp8Linear::weight(tensor, scope);
    if (factor.requires_grad()) {
      factor.register_hook([this, scale = input_scale_](const at::Tensor& gradient) {
        return gradient * (input_scale_ / scale).to(gradient.scalar_type());
      });
    }
    return factor;
  }

 private:
  at::Tensor input_scale_;  // of the latest forward
};

// A recomputed forward has scales that follow from this step as well.
class RecomputesWithNewestScale : public Fp8Quantiser {
 public:
  using Fp8Quantiser::Fp8Quantiser;

 protected:
  at::Tensor delayed_scale(const at::Tensor& amax) const override {
    return is_recomputing() ? newest_scale(*this) : Fp8Quantiser::delayed_scale(amax);
  }
};

// The largest number of inputs and weights counts, not the largest magnitude.
class IgnoresNegatives : public Fp8Quantiser {
 public:
  using Fp8Quantiser::Fp8Quantiser;

 protected:
  at::Tensor magnitudes(const at::Tensor& wide) const override {
    return operand().is_gradient ? Fp8Quantiser::magnitudes(wide)
                                 : Fp8Quantiser::magnitudes(wide.clamp_min(0.0));
  }
};

// The history has one place for all steps, the oldest but one.
class KeepsHistoryInPlace : public Fp8Quantiser {
 public:
  using Fp8Quantiser::Fp8Quantiser;

 protected:
  at::Tensor next_history(const at::Tensor& amax) const override {
    at::Tensor next = history().clone();
    next.select(0, std::max<std::int64_t>(0, next.size(0) - 2)).copy_(amax);
    return next;
  }
};

// Linears at a path, or all of them where it is empty, in layers that compute in FP8.
template <class Wrong>
void replace_fp8(Parts& parts, const std::string& meant = {}) {
  parts.fp8 = [before = parts.fp8, meant](LinearSplit split,
                                          const Blueprint& blueprint,
                                          const std::string& path) -> std::shared_ptr<Fp8Linear> {
    const bool is_wrong = (meant.empty() || path == meant) && computes_in_fp8(blueprint, path);
    return is_wrong ? std::make_shared<Wrong>(split, blueprint) : before(split, blueprint, path);
  };
}

constexpr Bug kFp8Bugs[] = {
    {"bf16-layers-by-local-index", count_own_layers},
    {"fp8-first-chunk-only", leave_out_later_chunks},
    {"fp8-casts-local-rows",
     [](Parts& parts, const Size& /*size*/) { replace_fp8<RepeatsOwnRows>(parts, kFp8Qkv); }},
    {"fp8-amax-not-shared",
     [](Parts& parts, const Size& /*size*/) { replace_fp8<SharesNoAmax>(parts); }},
    {"fp8-formats-exchanged",
     [](Parts& parts, const Size& /*size*/) { replace_fp8<ExchangesFormats>(parts, kFp8Fc2); }},
    {"recompute-without-fp8",
     [](Parts& parts, const Size& /*size*/) { replace_fp8<RecomputesInBf16>(parts); }},
    {"fp8-live-scale-in-backward",
     [](Parts& parts, const Size& /*size*/) { replace_fp8<TurnsBackWithNewestScale>(parts); }},
    {"recompute-with-newer-scales", everywhere<&Parts::quantiser, RecomputesWithNewestScale>},
    {"fp8-signed-amax", everywhere<&Parts::quantiser, IgnoresNegatives>},
    {"fp8-history-not-rolled", everywhere<&Parts::quantiser, KeepsHistoryInPlace>},
};

}  // namespace

std::span<const Bug> fp8_bugs() {
  return kFp8Bugs;
}

}  // namespace megatron_mini::faults
