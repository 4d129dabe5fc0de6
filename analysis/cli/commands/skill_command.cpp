#include "analysis/cli/commands/commands.h"
#include "analysis/cli/commands/skill_text.h"

#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

int run_skill(const po::variables_map&) {
  std::cout << kSkill;
  return 0;
}

}  // namespace

Manual skill_manual() {
  po::options_description named("Options");
  add_help_option(named);
  return {.name = "skill",
          .summary = "print a skill file for coding agents",
          .synopses = {"> FOLDER/SKILL.md"},
          .description = {"Prints what a coding agent needs to find a silent bug with this "
                          "program: when to use which command, what exit codes mean, and how to "
                          "get small answers in JSON. The file has the usual front matter, with a "
                          "name and a description."},
          .options = named,
          .run = run_skill,
          .exit_codes = {{"0", "printed"}, {"2", "bad usage"}},
          .examples = {{"mkdir -p .claude/skills/ttrace && ttrace skill > "
                        ".claude/skills/ttrace/SKILL.md",
                        "give the skill to agents that work in this folder"}},
          .takes_words = false};
}

}  // namespace ttrace::cli
