// ttrace doctor, with interpreters and launchers that are shell scripts.
#include "cli_fixture.h"

#include <filesystem>
#include <fstream>
#include <string>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Doctor : public CliTest {
 protected:
  // A program that runs `lines` of sh.
  std::string script(const std::string& name, const std::string& lines) {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path) << "#!/bin/sh\n" << lines << '\n';
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }
  std::string python(const std::string& json) {
    return script("python", "echo 'TTRACE_DOCTOR " + json + "'");
  }
  std::string whole_python() {
    return python(
        R"({"python": "3.11.2", "executable": "/p", "torch": "2.13.0", "cuda": false, "package": "/k", "library": "/l.so"})");
  }
};

TEST_F(Doctor, SaysThatNothingIsMissing) {
  const ProcessResult result =
      ttrace({"doctor", "--python", whole_python(), "--launcher", "env WORLD_SIZE=1"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("ok       torch        2.13.0, no GPU\n"),
                    HasSubstr("ok       library      /l.so, loads into this torch\n"),
                    HasSubstr("ok       env          hands variables to its ranks\n"),
                    Not(HasSubstr("MISSING"))));
}

// What a cluster's launcher does that starts ranks with an environment of their own.
TEST_F(Doctor, NamesALauncherThatLosesVariables) {
  const ProcessResult result =
      ttrace({"doctor", "--python", whole_python(), "--launcher", "env -i /usr/bin/env"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("MISSING  env          does not hand variables to its ranks"),
                    HasSubstr("-> make it pass on what begins with TTRACE_")));
}

TEST_F(Doctor, QuotesALauncherThatFails) {
  const std::string launcher = script("launch", "echo no partition given >&2; exit 1");
  const ProcessResult result =
      ttrace({"doctor", "--python", whole_python(), "--launcher", launcher});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("failed: no partition given"));
}

TEST_F(Doctor, RepeatsWhyThePackageCannotBeImported) {
  const ProcessResult result = ttrace(
      {"doctor",
       "--launcher",
       "env",
       "--python",
       python(
           R"({"python": "3.11.2", "executable": "/p", "torch": "2.12.0", "error": "ImportError: ttrace was built for torch 2.13"})")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("ok       torch        2.12.0"),
            HasSubstr("MISSING  package      ImportError: ttrace was built for torch 2.13")));
}

TEST_F(Doctor, AnInterpreterThatDoesNotRunIsNamed) {
  const ProcessResult result =
      ttrace({"doctor", "--launcher", "env", "--python", "/nowhere/python"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("MISSING  python       `/nowhere/python` does not run: "),
                    HasSubstr("-> name the interpreter of your training program: --python PATH")));
}

}  // namespace
}  // namespace ttrace::testing
