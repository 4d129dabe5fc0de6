#include "hooks/base/call_site.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

namespace ttrace {
namespace {

constexpr std::size_t kLongestSite = 1024;
std::atomic<CallSiteProvider> current{nullptr};

}  // namespace

std::string call_site() {
  const CallSiteProvider provider = current.load(std::memory_order_acquire);
  if (provider == nullptr) {
    return {};
  }
  std::array<char, kLongestSite> text = {};
  const int length = provider(text.data(), static_cast<int>(text.size()));
  return {text.data(), std::min(text.size(), static_cast<std::size_t>(std::max(length, 0)))};
}

}  // namespace ttrace

void ttrace_set_call_site_provider(ttrace::CallSiteProvider provider) {
  ttrace::current.store(provider, std::memory_order_release);
}
