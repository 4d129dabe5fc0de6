"""Bugs in torchtitan and in what it uses of torch."""

from __future__ import annotations

BUGS = []
