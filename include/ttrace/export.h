// Marks what libttrace_torch.so exports; everything else in it is hidden.
#pragma once

#define TTRACE_API __attribute__((visibility("default")))
