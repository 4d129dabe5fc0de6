"""Traces programs that have no line of TTrace in them: `ttrace check --auto`."""
