// TTRACE_API marks what libttrace_torch.so exports. All other symbols in it are hidden.
#pragma once

#define TTRACE_API __attribute__((visibility("default")))
