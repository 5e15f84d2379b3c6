"""Where a run took place: versions, processor and threads, found without importing packages.

The files of a user's own that a run's task or model came from are recorded by path and SHA-256.
Opening a run never loads them: whoever made the run chose the path, and loading it runs its code.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beliefspace.core.files import sha256
from beliefspace.core.registry import loaded_files

__all__ = ["code_needed", "environment", "recorded_files", "version"]

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


def recorded_files(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return path -> SHA-256 of the user's files that a run records; what is malformed is left out.

    Args:
        environment: of the run, which may come from anywhere.
    """
    plugins = environment.get("plugins")
    pairs = [
        (one.get("path"), one.get("sha256"))
        for one in (plugins if isinstance(plugins, list) else [])
        if isinstance(one, Mapping)
    ]
    return {
        path: digest
        for path, digest in pairs
        if isinstance(path, str) and isinstance(digest, str) and path and path.isprintable()
    }


def code_needed(environment: Mapping[str, Any]) -> list[str]:
    """Return a line for each user's file that a run records: which, in what state, how to load it.

    Args:
        environment: of the run.
    """
    return [
        f"the run needs code from {path} ({_state(Path(path), digest)}); "
        f"if you trust it, add: --plugin {shlex.quote(path)}"
        for path, digest in recorded_files(environment).items()
    ]


def _state(path: Path, digest: str) -> str:
    try:
        content = path.read_bytes() if path.is_file() else None
    except OSError:
        content = None
    if content is None:
        return "which is not there"
    return "unchanged since" if sha256(content) == digest else "changed since: another sha256"


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
