#include "support/derived_config.h"

#include <ttrace/error.h>

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <fstream>

namespace ttrace::testing {

void write_derived_config(const std::string& base,
                          const ConfigChanges& changes,
                          const std::string& file) {
  YAML::Node root;
  try {
    root = YAML::LoadFile(base);
  } catch (const YAML::Exception& error) {
    TTRACE_THROW(UsageError, "cannot read the configuration ", base, ": ", error.what());
  }
  const std::filesystem::path folder = std::filesystem::absolute(base).parent_path();
  root["data"]["file"] = (folder / root["data"]["file"].as<std::string>()).string();
  for (const auto& [key, text] : changes) {
    const std::size_t dot = key.find('.');
    if (dot == std::string::npos) {
      root[key] = YAML::Load(text);
    } else {
      root[key.substr(0, dot)][key.substr(dot + 1)] = YAML::Load(text);
    }
  }
  std::ofstream out(file);
  out << root << '\n';
  TTRACE_CHECK(out.flush().good(), UsageError, "cannot write the configuration ", file);
}

}  // namespace ttrace::testing
