#include "hooks/nudge/noise_class.h"

#include <gtest/gtest.h>

namespace ttrace {
namespace {

TEST(NoiseClass, CopiesViewsLookupsAndFactoriesDoNotRound) {
  for (const char* name : {"aten::copy_",         "aten::_to_copy",     "aten::to",
                           "aten::clone",         "aten::contiguous",   "aten::view",
                           "aten::_unsafe_view",  "aten::reshape",      "aten::t",
                           "aten::transpose",     "aten::expand",       "aten::cat",
                           "aten::stack",         "aten::index_select", "aten::gather",
                           "aten::slice",         "aten::select",       "aten::embedding",
                           "aten::masked_fill_",  "aten::where",        "aten::zeros_like",
                           "aten::ones",          "aten::empty",        "aten::full",
                           "aten::fill_",         "aten::zero_",        "aten::max",
                           "aten::amax",          "aten::argmax",       "aten::topk",
                           "aten::sort",          "aten::bernoulli_",   "aten::neg",
                           "aten::abs",           "aten::detach",       "aten::eq",
                           "aten::tril",          "aten::triu_",        "aten::arange",
                           "c10d::allreduce_",    "aten::relu_",        "aten::clamp",
                           "aten::slice_backward"}) {
    EXPECT_EQ(noise_class(name), NoiseClass::kNone) << name;
  }
}

TEST(NoiseClass, SumsOverManyElementsDependOnTheirOrder) {
  for (const char* name : {"aten::mm",
                           "aten::addmm",
                           "aten::bmm",
                           "aten::baddbmm",
                           "aten::sum",
                           "aten::mean",
                           "aten::cumsum",
                           "aten::_softmax",
                           "aten::_log_softmax_backward_data",
                           "aten::native_layer_norm",
                           "aten::native_layer_norm_backward",
                           "aten::embedding_dense_backward",
                           "aten::_scaled_dot_product_flash_attention_for_cpu",
                           "aten::convolution",
                           "aten::nll_loss_forward",
                           "aten::index_add_"}) {
    EXPECT_EQ(noise_class(name), NoiseClass::kReduction) << name;
  }
}

TEST(NoiseClass, AListRoundsAsItsTensorsDo) {
  EXPECT_EQ(noise_class("aten::_foreach_zero_"), NoiseClass::kNone);
  EXPECT_EQ(noise_class("aten::_foreach_copy_"), NoiseClass::kNone);
  EXPECT_EQ(noise_class("aten::_foreach_norm"), NoiseClass::kReduction);
  EXPECT_EQ(noise_class("aten::_foreach_addcdiv_"), NoiseClass::kRounding);
  EXPECT_EQ(noise_class("aten::_fused_adamw_"), NoiseClass::kRounding);
}

TEST(NoiseClass, EverythingElseRoundsOnce) {
  for (const char* name : {"aten::add",
                           "aten::add_",
                           "aten::mul",
                           "aten::gelu",
                           "aten::gelu_backward",
                           "aten::silu",
                           "aten::rsqrt",
                           "aten::addcdiv_",
                           "aten::tanh_backward",
                           "my_library::fused"}) {
    EXPECT_EQ(noise_class(name), NoiseClass::kRounding) << name;
  }
}

}  // namespace
}  // namespace ttrace
