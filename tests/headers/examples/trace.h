// The example of <ttrace/trace.h>, to be run.
#pragma once

// Prints the tensors of the trace runs/1/candidate.
void example_of_trace();
