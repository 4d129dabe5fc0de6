#include "hooks/nudge/noise_class.h"

#include "hooks/nudge/operator_name.h"

#include <algorithm>
#include <array>

namespace ttrace {
namespace {

// Sums over many elements. Matched first, and by prefix, because families differ in suffixes
// only ("sum", "sum_to_size"; "mm"-like names are exact below). Different layouts and kernels add
// in different orders, so that one unit in the last place is too little for F32 and F64.
constexpr std::array kReductionPrefixes = {
    std::string_view("_scaled_dot_product"),
    std::string_view("scaled_dot_product"),
    std::string_view("_softmax"),
    std::string_view("_log_softmax"),
    std::string_view("conv"),
    std::string_view("_conv"),
    std::string_view("thnn_conv"),
    std::string_view("_slow_conv"),
    std::string_view("mkldnn_conv"),
    std::string_view("mkldnn_linear"),
    std::string_view("native_layer_norm"),
    std::string_view("native_group_norm"),
    std::string_view("native_batch_norm"),
    std::string_view("_fused_rms_norm"),
    std::string_view("nll_loss"),
    std::string_view("linalg_vector_norm"),
    std::string_view("embedding_dense_backward"),
    std::string_view("index_add"),
    std::string_view("scatter_add"),
};

constexpr std::array kReductions = {
    std::string_view("mm"),
    std::string_view("addmm"),
    std::string_view("_addmm_activation"),
    std::string_view("bmm"),
    std::string_view("baddbmm"),
    std::string_view("addbmm"),
    std::string_view("mv"),
    std::string_view("addmv"),
    std::string_view("dot"),
    std::string_view("vdot"),
    std::string_view("matmul"),
    std::string_view("linear"),
    std::string_view("sum"),
    std::string_view("nansum"),
    std::string_view("mean"),
    std::string_view("var"),
    std::string_view("std"),
    std::string_view("var_mean"),
    std::string_view("std_mean"),
    std::string_view("norm"),
    std::string_view("cumsum"),
    std::string_view("prod"),
    std::string_view("logsumexp"),
    std::string_view("logcumsumexp"),
    std::string_view("softmax"),
    std::string_view("log_softmax"),
};

// Families that hand values on unchanged or make them from nothing: factories, copies, views,
// joins, lookups, masks, draws from a generator. A value that was not computed has no rounding to
// move; noise there would be noise on inputs, parameters and masks.
constexpr std::array kExactPrefixes = {
    std::string_view("empty"),        std::string_view("zeros"),
    std::string_view("ones"),         std::string_view("full"),
    std::string_view("new_"),         std::string_view("rand"),
    std::string_view("index"),        std::string_view("gather"),
    std::string_view("slice"),        std::string_view("select"),
    std::string_view("scatter"),      std::string_view("embedding"),
    std::string_view("masked_"),      std::string_view("view"),
    std::string_view("_unsafe_view"), std::string_view("unsafe_"),
    std::string_view("_reshape"),     std::string_view("reshape"),
    std::string_view("expand"),       std::string_view("repeat"),
    std::string_view("split"),        std::string_view("chunk"),
    std::string_view("unbind"),       std::string_view("stack"),
    std::string_view("cat"),          std::string_view("concat"),
    std::string_view("hstack"),       std::string_view("vstack"),
    std::string_view("squeeze"),      std::string_view("unsqueeze"),
    std::string_view("as_strided"),   std::string_view("_pack_padded"),
    std::string_view("_pad"),         std::string_view("arg"),
    std::string_view("logical_"),     std::string_view("bitwise_"),
    std::string_view("_index_put"),   std::string_view("_unsafe_index"),
};

// Single operators of those families, comparisons, and operators whose result is one of their
// arguments (maximum, clamp, sort) or differs from it in the sign only. Trailing `_` removed.
constexpr std::array kExact = {
    std::string_view("_to_copy"),
    std::string_view("to"),
    std::string_view("type_as"),
    std::string_view("copy"),
    std::string_view("clone"),
    std::string_view("contiguous"),
    std::string_view("detach"),
    std::string_view("alias"),
    std::string_view("lift_fresh"),
    std::string_view("resolve_neg"),
    std::string_view("resolve_conj"),
    std::string_view("t"),
    std::string_view("transpose"),
    std::string_view("permute"),
    std::string_view("swapaxes"),
    std::string_view("movedim"),
    std::string_view("flatten"),
    std::string_view("unflatten"),
    std::string_view("narrow"),
    std::string_view("diagonal"),
    std::string_view("unfold"),
    std::string_view("flip"),
    std::string_view("roll"),
    std::string_view("tile"),
    std::string_view("pad"),
    std::string_view("constant_pad_nd"),
    std::string_view("tril"),
    std::string_view("triu"),
    std::string_view("diag"),
    std::string_view("eye"),
    std::string_view("arange"),
    std::string_view("scalar_tensor"),
    std::string_view("one_hot"),
    std::string_view("fill"),
    std::string_view("zero"),
    std::string_view("resize"),
    std::string_view("resize_as"),
    std::string_view("set"),
    std::string_view("where"),
    std::string_view("take"),
    std::string_view("take_along_dim"),
    std::string_view("bernoulli"),
    std::string_view("normal"),
    std::string_view("uniform"),
    std::string_view("exponential"),
    std::string_view("random"),
    std::string_view("multinomial"),
    std::string_view("max"),
    std::string_view("min"),
    std::string_view("amax"),
    std::string_view("amin"),
    std::string_view("aminmax"),
    std::string_view("maximum"),
    std::string_view("minimum"),
    std::string_view("fmax"),
    std::string_view("fmin"),
    std::string_view("topk"),
    std::string_view("sort"),
    std::string_view("kthvalue"),
    std::string_view("median"),
    std::string_view("clamp"),
    std::string_view("clamp_min"),
    std::string_view("clamp_max"),
    std::string_view("relu"),
    std::string_view("hardtanh"),
    std::string_view("threshold"),
    std::string_view("threshold_backward"),
    std::string_view("value_selecting_reduction_backward"),
    std::string_view("neg"),
    std::string_view("negative"),
    std::string_view("abs"),
    std::string_view("sign"),
    std::string_view("sgn"),
    std::string_view("floor"),
    std::string_view("ceil"),
    std::string_view("round"),
    std::string_view("trunc"),
    std::string_view("frac"),
    std::string_view("eq"),
    std::string_view("ne"),
    std::string_view("lt"),
    std::string_view("le"),
    std::string_view("gt"),
    std::string_view("ge"),
    std::string_view("isnan"),
    std::string_view("isinf"),
    std::string_view("isfinite"),
    std::string_view("item"),
    std::string_view("_local_scalar_dense"),
};

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Collectives move values; what they round is the candidate's, and no reference has them.
constexpr std::array kExactNamespaces = {
    std::string_view("c10d::"),
    std::string_view("_c10d_functional::"),
    std::string_view("prim::"),
    std::string_view("profiler::"),
};

}  // namespace

NoiseClass noise_class(std::string_view name) {
  if (starts_with_one_of(kExactNamespaces, name)) {
    return NoiseClass::kNone;
  }
  name = base_name(name);
  if (name.ends_with('_')) {
    name.remove_suffix(1);
  }
  if (contains(kReductions, name) || starts_with_one_of(kReductionPrefixes, name)) {
    return NoiseClass::kReduction;
  }
  if (contains(kExact, name) || starts_with_one_of(kExactPrefixes, name)) {
    return NoiseClass::kNone;
  }
  return NoiseClass::kRounding;
}

}  // namespace ttrace
