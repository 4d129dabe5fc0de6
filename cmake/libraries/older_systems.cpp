// Lets what is compiled on Debian 12 run with glibc 2.34 and the libstdc++ of GCC 11 (Red Hat
// Enterprise Linux 9).
//
// Two functions have a newer version there: std::condition_variable::wait became noexcept in GCC
// 12, and glibc 2.35 freed hypot of its error handling. Every libstdc++ and glibc still has the
// version before, and the linker's --wrap leads our calls to it (SelfContained.cmake).
__asm__(
    ".symver ttrace_wait, "
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
__asm__(".symver ttrace_hypot, hypot@GLIBC_2.2.5");

extern "C" {
void ttrace_wait(void* condition, void* lock);
double ttrace_hypot(double x, double y);

__attribute__((visibility("hidden"))) void
__wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(void* condition, void* lock) {
  ttrace_wait(condition, lock);
}

__attribute__((visibility("hidden"))) double __wrap_hypot(double x, double y) {
  return ttrace_hypot(x, y);
}
}
