"""Traces of other tools' files: `ttrace import` runs `python3 -m ttrace.imports`.

Each module reads one foreign format and nothing else. What it finds goes to `writing`, which hands it to
the library, so that an imported trace is written as any other.
"""
