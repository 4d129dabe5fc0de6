"""None: those of examples/dtensor/planted_bug.py are tested by tests/python/test_dtensor.py."""

from __future__ import annotations

from catalogue import Bug

BUGS: list[Bug] = []
