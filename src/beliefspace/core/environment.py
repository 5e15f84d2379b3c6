"""Where a run took place: versions, processor and threads, found without importing packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from beliefspace.core.registry import loaded_files

__all__ = ["environment", "version"]

PACKAGES = (
    "beliefspace",
    "numpy",
    "scipy",
    "safetensors",
    "torch",
    "transformers",
    "clarabel",
    "numba",
    "scikit-learn",
    "matplotlib",
)
"""The packages whose versions can change a number."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def environment() -> dict[str, Any]:
    """Return what could explain a difference between two runs of the same config.

    Returns:
        ``python``, ``platform``, ``packages`` (versions of installed ones), ``processor``,
        ``cpus`` (how many this process may use), ``threads`` (the variables that limit threads),
        ``plugins`` (path and SHA-256 of each user's file that was loaded).
    """
    versions = {name: version(name) for name in PACKAGES}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name, found in versions.items() if found is not None},
        "processor": _processor(),
        "cpus": _cpus(),
        "threads": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "plugins": loaded_files(),
    }


def version(package: str) -> str | None:
    """Return the version of an installed package, without importing it, or None.

    Args:
        package: the name under which it is installed.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    """Return the processor's model, which ``platform`` does not know on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()
