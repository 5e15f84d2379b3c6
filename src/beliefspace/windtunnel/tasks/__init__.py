"""The tasks; every registered class is an attribute of this package under its own name."""

from __future__ import annotations

from beliefspace.core.registry import exporter

__getattr__, __dir__ = exporter("tasks")
