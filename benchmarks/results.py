"""Results on disk: one JSON file for each thing measured, written as soon as it is there.

Beside its numbers a file holds the identity of what was measured (a hash of its settings), the day,
and the machine in words. What is there under the same identity is not measured again; to measure it
again, remove the file.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beliefspace.core.environment import environment
from beliefspace.core.files import read_json, write_atomic
from beliefspace.core.jsonable import to_json

FOLDER = Path(__file__).parent / "results"


def keep(folder: Path, name: str, identity: str, facts: Mapping[str, Any]) -> None:
    """Write what was measured, whole or not at all.

    Args:
        folder: of all results.
        name: the part of the benchmarks and what it is, such as "accuracy/sampled-6min/seed-0".
        identity: of the settings.
        facts: the numbers; plain values.
    """
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    content = {"identity": identity, "measured": today, "machine": machine(), **facts}
    write_atomic(path, to_json(content, indent=1) + "\n")


def is_kept(folder: Path, name: str, identity: str) -> bool:
    """Return whether this very thing was measured."""
    path = folder / f"{name}.json"
    return path.exists() and read_json(path)["identity"] == identity


def drop_others(folder: Path, part: str, identities: Mapping[str, str]) -> None:
    """Remove a part's results that are of something else than what is measured now.

    Otherwise a changed recipe would stand in one table with variants of the former one.

    Args:
        folder: of all results.
        part: the part.
        identities: of what is measured now, by name.
    """
    for path in (folder / part).rglob("*.json"):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if read_json(path)["identity"] != identities.get(name):
            path.unlink()


def read(folder: Path, part: str) -> list[dict[str, Any]]:
    """Return all results of a part, in the order of their names."""
    return [read_json(path) for path in sorted((folder / part).rglob("*.json"))]


def machine() -> dict[str, Any]:
    """Return what a number depends on, without a name or a path of the machine."""
    found = environment()
    versions = {name: found["packages"].get(name) for name in ("torch", "numpy", "transformers")}
    return {
        "processor": found["processor"],
        "cores": found["cpus"],
        "python": found["python"],
        "packages": {name: version for name, version in versions.items() if version},
        # How many processes wanted a core, on average over the last minute.
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }
