"""Checkpoints: arrays in a safetensors file, and a record written after it that proves it whole.

The record ``step-00001234.json`` holds schema, step, the size and SHA-256 of the arrays' file, the
writer's own ``meta``, and a seal: the SHA-256 of all that. A checkpoint exists once its record
does. Both hashes find accidents and careless edits; whoever alters the arrays on purpose can
recompute them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from beliefspace.core.errors import CorruptFile, InvalidInput
from beliefspace.core.files import (
    SCHEMA,
    check_schema,
    read_bytes,
    read_json,
    sha256,
    write_atomic,
)
from beliefspace.core.jsonable import jsonable, to_json

__all__ = ["Checkpoint", "load", "save", "steps"]

_STEP_FILE = re.compile(r"step-(\d{8,})\.(safetensors|json)")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a step.

    Args:
        step: how many steps had been taken.
        tensors: arrays by name, in the order of the names.
        meta: whatever else the writer gave, as plain JSON values.
        skipped: for each newer checkpoint that could not be used, one line that says why.
    """

    step: int
    tensors: dict[str, np.ndarray]
    meta: dict[str, Any]
    skipped: tuple[str, ...] = ()


def save(
    directory: Path,
    step: int,
    tensors: Mapping[str, np.ndarray],
    meta: Mapping[str, Any],
    keep: int,
) -> None:
    """Save a checkpoint, then drop the oldest; see :meth:`.store.Run.save_checkpoint`.

    Args:
        directory: where the run's checkpoints live.
        step: how many steps had been taken.
        tensors: arrays by name.
        meta: what JSON can hold.
        keep: how many checkpoints up to this step to keep.
    """
    if step < 0 or keep < 1:
        raise InvalidInput(f"step {step}, keep {keep}: expected step >= 0 and keep >= 1")
    # safetensors writes memory as it lies: a transposed array would come back scrambled.
    ordered = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    try:
        content = safetensors.numpy.save(ordered)
    except (safetensors.SafetensorError, KeyError, AttributeError, TypeError) as error:
        raise InvalidInput(f"checkpoint of step {step} cannot be saved: {error}") from error
    record = {
        "schema": SCHEMA,
        "step": step,
        "bytes": len(content),
        "sha256": sha256(content),
        "meta": jsonable(meta),
    }
    record_file = _file(directory, step, "json")
    write_atomic(_file(directory, step, "safetensors"), content, described_by=record_file)
    write_atomic(record_file, to_json(record | {"seal": _seal(record)}, indent=2) + "\n")
    _prune(directory, step, keep)


def steps(directory: Path) -> list[int]:
    """Return the steps that have a checkpoint, ascending, intact or not.

    Args:
        directory: where the run's checkpoints live.
    """
    return sorted(step for step, ending in _files(directory) if ending == "json")


def load(directory: Path, step: int | None) -> Checkpoint:
    """Load an intact checkpoint; see :meth:`.store.Run.load_checkpoint`.

    Args:
        directory: where the run's checkpoints live.
        step: which one; None takes the newest that is intact.
    """
    known = steps(directory)
    if not known or (step is not None and step not in known):
        which = "" if step is None else f" of step {step}"
        there = f"; there are those of {', '.join(map(str, known))}" if known else ""
        raise InvalidInput(f"{directory} has no checkpoint{which}{there}")
    if step is not None:
        return _load_intact(directory, step)
    skipped: list[str] = []
    for candidate in reversed(known):
        try:
            found = _load_intact(directory, candidate)
        except CorruptFile as error:
            skipped.append(str(error))
        else:
            return dataclasses.replace(found, skipped=tuple(skipped))
    raise CorruptFile(f"no checkpoint is intact: {'; '.join(skipped)}")


def _load_intact(directory: Path, step: int) -> Checkpoint:
    file, record_file = _file(directory, step, "safetensors"), _file(directory, step, "json")
    record = read_json(record_file)
    check_schema(record_file, record)
    seal = record.pop("seal", None)
    if seal != _seal(record) or record["step"] != step:
        raise CorruptFile(f"{record_file} was altered: its content does not match its seal")
    content = read_bytes(file)
    if len(content) != record["bytes"]:
        raise CorruptFile(f"{file} has {len(content):,} bytes: expected {record['bytes']:,}")
    if sha256(content) != record["sha256"]:
        raise CorruptFile(f"{file} was altered: its SHA-256 is not the one in {record_file.name}")
    tensors = dict(sorted(safetensors.numpy.load(content).items()))
    return Checkpoint(step, tensors, record["meta"])


def _seal(record: Mapping[str, Any]) -> str:
    return sha256(json.dumps(record, sort_keys=True).encode())


def _file(directory: Path, step: int, ending: str) -> Path:
    return directory / f"step-{step:08d}.{ending}"


def _files(directory: Path) -> list[tuple[int, str]]:
    names = os.listdir(directory) if directory.is_dir() else []
    matches = [match for match in map(_STEP_FILE.fullmatch, names) if match]
    return [(int(match[1]), match[2]) for match in matches]


def _prune(directory: Path, step: int, keep: int) -> None:
    """Drop checkpoints before the ``keep`` newest up to this step; a later one is never judged."""
    kept = [known for known in steps(directory) if known <= step][-keep:]
    # Records go first: without its record an arrays' file is no checkpoint.
    for old, ending in sorted(_files(directory), key=lambda file: file[1]):
        if old < step and old not in kept:
            _file(directory, old, ending).unlink(missing_ok=True)
