"""One module for every way of building a training program; see `ttrace.program.Program`."""
