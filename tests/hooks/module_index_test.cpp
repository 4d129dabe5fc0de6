#include "hooks/base/module_index.h"

#include <ttrace/error.h>

#include <gtest/gtest.h>

namespace ttrace {
namespace {

// Only the addresses matter.
const torch::nn::Module* module(const char& place) {
  return reinterpret_cast<const torch::nn::Module*>(&place);
}

const char kPlaces[4] = {};

ModuleIndex index() {
  return ModuleIndex({{"", module(kPlaces[0])},
                      {"mlp", module(kPlaces[1])},
                      {"mlp.fc1", module(kPlaces[2])},
                      {"mlp-2", module(kPlaces[3])}});
}

TEST(ModuleIndex, NamesModulesAndTheirUnregisteredChildren) {
  EXPECT_EQ(index().path_of(module(kPlaces[2]), ""), "mlp.fc1");
  EXPECT_EQ(index().path_of(module(kPlaces[1]), "core"), "mlp.core");
  EXPECT_EQ(index().path_of(module(kPlaces[0]), "core"), "core");
}

TEST(ModuleIndex, RefusesAModuleOutsideTheAttachedOne) {
  const char foreign = 0;
  EXPECT_THROW(static_cast<void>(index().path_of(module(foreign), "")), UsageError);
}

TEST(ModuleIndex, LeavesHaveNoModuleBelow) {
  EXPECT_FALSE(index().is_leaf(""));
  EXPECT_FALSE(index().is_leaf("mlp"));
  EXPECT_TRUE(index().is_leaf("mlp.fc1"));
  EXPECT_TRUE(index().is_leaf("mlp-2"));
  EXPECT_TRUE(index().is_leaf("mlp.core"));
}

TEST(ModuleIndex, ModulesThatAreNoObjectsAreKnownByTheirPaths) {
  const ModuleIndex modules({{"mlp", nullptr}, {"mlp.fc1", nullptr}, {"norm", module(kPlaces[0])}});
  EXPECT_FALSE(modules.is_object("mlp"));
  EXPECT_FALSE(modules.is_object("mlp.fc1"));
  EXPECT_TRUE(modules.is_object("norm"));
  EXPECT_FALSE(modules.is_leaf("mlp"));
  EXPECT_TRUE(modules.is_leaf("mlp.fc1"));
  EXPECT_THROW(static_cast<void>(modules.path_of(nullptr, "")), UsageError);
}

}  // namespace
}  // namespace ttrace
