// Pairs modules: owners of the same parameters, containers of the same parameters, and modules
// without parameters that lie in the same one. Values decide where there is a choice.
//
// Thread-safety: one thread at a time.
#pragma once

#include "analysis/guess/agreement.h"
#include "analysis/guess/layer_patterns.h"
#include "analysis/guess/pairings.h"

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

struct ModulePair {
  PathGroup paths;
  Fusion fusion = {};  // of their outputs, where one side has parts
  Certainty certainty = Certainty::kCertain;
  std::string evidence = {};
  bool by_parameters = false;  // they own the same parameters
};

class ModulePairs {
 public:
  // Keeps references. Decides GuessState::comparable.
  ModulePairs(GuessState& state, const Agreements& agreements);

  [[nodiscard]] std::span<const ModulePair> all() const { return pairs_; }
  // Null if the module has no counterpart.
  [[nodiscard]] const ModulePair* find(Names side, const std::string& path) const;
  // The innermost module around `path` that has one counterpart, and this; both empty for the
  // program itself.
  [[nodiscard]] std::pair<std::string, std::string> region_of(Names side,
                                                              const std::string& path) const;

 private:
  void add(ModulePair pair);
  [[nodiscard]] bool is_free(Names side, const std::string& path) const;

  void pair_owners();
  [[nodiscard]] std::optional<ModulePair> owners_of(const Pairing& pairing) const;
  [[nodiscard]] bool owns_only(Names side, const std::string& path, const PathGroup& owners) const;
  [[nodiscard]] bool outputs_fit(const ModulePair& pair) const;
  void decide_comparable();

  void pair_containers();
  [[nodiscard]] bool is_container(Names side, const GuessModule& module) const;
  [[nodiscard]] std::set<UnitNumber> image(Names side, const std::set<UnitNumber>& units) const;
  void pair_chain(std::vector<const GuessModule*> reference,
                  std::vector<const GuessModule*> candidate);

  void pair_without_parameters();
  void pair_by_layers();

  // Tensors of the two that agree; nothing if outputs differ, or shapes do not fit.
  [[nodiscard]] std::optional<int> score(const GuessModule& reference,
                                         const GuessModule& candidate) const;
  [[nodiscard]] bool stand_alike(const std::vector<const GuessModule*>& reference,
                                 const std::vector<const GuessModule*>& candidate,
                                 const GuessModule* left,
                                 const GuessModule* right) const;
  void pair_best(const std::vector<const GuessModule*>& reference,
                 const std::vector<const GuessModule*>& candidate,
                 const char* evidence);

  GuessState& state_;
  const Agreements& agreements_;
  std::vector<ModulePair> pairs_;
  std::map<std::pair<Names, std::string>, std::size_t> places_;
};

}  // namespace ttrace
