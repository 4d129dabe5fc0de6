#include "hooks/nudge/noise_class.h"

#include "hooks/nudge/operator_name.h"
#include "trace/base/star_pattern.h"

#include <array>

namespace ttrace {
namespace {

// Lists of names without their trailing `_`. `*` ends what a family of names begins with, whose
// members differ in suffixes only ("index_select", "index_put").

// Sums over many elements. Matched first. Different layouts and kernels add in different orders, so
// that one unit in the last place is too little for F32 and F64.
constexpr std::string_view kReductions =
    "_scaled_dot_product* scaled_dot_product* _softmax* _log_softmax* conv* _conv* thnn_conv* "
    "_slow_conv* mkldnn_conv* mkldnn_linear* native_layer_norm* native_group_norm* "
    "native_batch_norm* _fused_rms_norm* nll_loss* linalg_vector_norm* embedding_dense_backward* "
    "index_add* scatter_add* mm addmm _addmm_activation bmm baddbmm addbmm mv addmv dot vdot "
    "matmul linear sum nansum mean var std var_mean std_mean norm cumsum prod logsumexp "
    "logcumsumexp softmax log_softmax";

// Operators that hand values on unchanged or make them from nothing: factories, copies, views,
// joins, lookups, masks, draws from a generator. A value that was not computed has no rounding to
// move; noise there would be noise on inputs, parameters and masks. The same holds of comparisons,
// and operators whose result is one of their arguments (maximum, clamp, sort) or differs from it in
// the sign only.
constexpr std::string_view kExact =
    "empty* zeros* ones* full* new_* rand* index* gather* slice* select* scatter* embedding* "
    "masked_* view* _unsafe_view* unsafe_* _reshape* reshape* expand* repeat* split* chunk* "
    "unbind* stack* cat* concat* hstack* vstack* squeeze* unsqueeze* as_strided* _pack_padded* "
    "_pad* arg* logical_* bitwise_* _index_put* _unsafe_index* _to_copy to type_as copy clone "
    "contiguous detach alias lift_fresh resolve_neg resolve_conj t transpose permute swapaxes "
    "movedim flatten unflatten narrow diagonal unfold flip roll tile pad constant_pad_nd tril "
    "triu diag eye arange scalar_tensor one_hot fill zero resize resize_as set where take "
    "take_along_dim bernoulli normal uniform exponential random multinomial max min amax amin "
    "aminmax maximum minimum fmax fmin topk sort kthvalue median clamp clamp_min clamp_max relu "
    "hardtanh threshold threshold_backward value_selecting_reduction_backward neg negative abs "
    "sign sgn floor ceil round trunc frac eq ne lt le gt ge isnan isinf isfinite item "
    "_local_scalar_dense";

// Collectives move values; what they round is the candidate's, and no reference has them.
constexpr auto kExactNamespaces =
    std::to_array<std::string_view>({"c10d::", "_c10d_functional::", "prim::", "profiler::"});

}  // namespace

NoiseClass noise_class(std::string_view name) {
  if (starts_with_one_of(kExactNamespaces, name)) {
    return NoiseClass::kNone;
  }
  name = base_name(name);
  if (name.ends_with('_')) {
    name.remove_suffix(1);
  }
  return fits_any(kReductions, name) ? NoiseClass::kReduction
         : fits_any(kExact, name)    ? NoiseClass::kNone
                                     : NoiseClass::kRounding;
}

}  // namespace ttrace
