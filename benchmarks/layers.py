"""Scan cores, whole layers, and what asking for points costs, with either setting of the allocator.

glibc gives large blocks back to the system and takes them anew at each allocation, which is slow to
touch; with raised thresholds it keeps them. The settings are read when a process starts, so each is
measured in a process of its own (``python -m benchmarks.layers``).
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from beliefspace.cli.console import note
from beliefspace.core import registry
from beliefspace.core.config import content_hash
from beliefspace.core.errors import BeliefspaceError, InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.core.taps import NO_TAP
from beliefspace.windtunnel.models.bilinear import Bilinear
from beliefspace.windtunnel.models.gated_delta import GatedDelta
from beliefspace.windtunnel.models.gru import GRU
from beliefspace.windtunnel.models.linear_attention import LinearAttention
from beliefspace.windtunnel.models.lstm import LSTM
from beliefspace.windtunnel.models.mamba import Mamba
from beliefspace.windtunnel.models.mamba2 import Mamba2
from beliefspace.windtunnel.models.stack import StackSpec
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.networks.base import Initializer, Network
from beliefspace.windtunnel.networks.positions import Sight
from beliefspace.windtunnel.networks.selective_scan import selective_scan
from beliefspace.windtunnel.networks.ssd import Decay, mix
from beliefspace.windtunnel.networks.transformer import Block
from beliefspace.windtunnel.tasks.bijection import Bijection
from benchmarks import results
from benchmarks.alternating import alternate, one_thread

THRESHOLDS = {
    "MALLOC_MMAP_THRESHOLD_": str(4 * 10**9),
    "MALLOC_TRIM_THRESHOLD_": str(4 * 10**9),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}
ALLOCATORS = {"default": {}, "raised thresholds": THRESHOLDS}
SCANS = {"64 x 40": (64, 40), "4 x 512": (4, 512), "1 x 4,096": (1, 4096)}
CHANNELS, STATE, HEADS, CHUNK = 512, 16, 8, 64
WIDTH, BATCH, LENGTH = 256, 64, 40
ROUNDS, SLICE_S = 5, 2.0
POINT_ROUNDS, POINT_SLICE_S = 9, 0.8
PROCESS = Path("/proc/self")


@dataclass(frozen=True)
class Protocol:
    """What is measured; another version is measured anew.

    Args:
        allocator: which setting.
        version: of this module's choices.
    """

    allocator: str
    version: int = 2


def estimate(folder: Path = results.FOLDER) -> float:
    """Return about how many seconds of wall clock are left to measure."""
    return 120.0 * sum(not results.is_kept(folder, *_key(name)) for name in ALLOCATORS)


def measure(folder: Path = results.FOLDER) -> None:
    """Measure with each setting of the allocator, in a process of its own."""
    results.drop_others(folder, "layers", dict(map(_key, ALLOCATORS)))
    for name, settings in ALLOCATORS.items():
        if results.is_kept(folder, *_key(name)):
            continue
        note(f"layers, allocator: {name}")
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks.layers"],
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            check=False,
        )
        if child.returncode:
            raise BeliefspaceError(f"measuring layers ended with status {child.returncode}")
        results.keep(folder, *_key(name), {"allocator": name, **json.loads(child.stdout)})


def _key(name: str) -> tuple[str, str]:
    return f"layers/{name.replace(' ', '-')}", content_hash(Protocol(name))


def everything() -> dict[str, Any]:
    """Measure all in this process."""
    with one_thread():
        return {
            "scans": {name: _scans(*size) for name, size in SCANS.items()},
            "layers": alternate(_layers(), ROUNDS, SLICE_S),
            "points": _points(),
        }


# ------------------------------------------------------------------------------------------- scans


def _scans(batch: int, length: int) -> dict[str, Any]:
    """Time each core, forward and backward, and note the memory that a call takes at its most."""
    cores = _cores(batch, length)
    memory = {name: added_megabytes(partial(core, 0)) for name, core in cores.items()}
    return {"rounds": alternate(cores, 3, SLICE_S), "added_megabytes": memory}


def added_megabytes(call: Callable[[], object]) -> float | None:
    """Return what a call adds to the memory of this process at its most; None where unknown."""
    call()  # what the first call keeps, such as gradients and modules, is not its own
    try:
        # Blocks that the allocator has kept would hide what the call takes.
        ctypes.CDLL(None).malloc_trim(0)
        (PROCESS / "clear_refs").write_text("5", encoding="ascii")  # the most is now the present
        before = _most_megabytes()
        call()
        return _most_megabytes() - before
    except (AttributeError, OSError):
        return None


def _most_megabytes() -> float:
    found = re.search(r"VmHWM:\s*(\d+) kB", (PROCESS / "status").read_text(encoding="ascii"))
    if found is None:
        raise OSError("the system does not tell the most memory of a process")
    return int(found[1]) / 1024


def _cores(batch: int, length: int) -> dict[str, Callable[[int], object]]:
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).requires_grad_()

    x, step = drawn(batch, length, CHANNELS), drawn(batch, length, CHANNELS)
    entering, leaving = drawn(batch, length, STATE), drawn(batch, length, STATE)
    log_rates = torch.arange(1.0, STATE + 1).log()[:, None].repeat(1, CHANNELS).requires_grad_()
    heads = drawn(batch, HEADS, length, CHANNELS // HEADS)
    decay = drawn(batch, HEADS, length)

    def ours(_: int) -> None:
        y = selective_scan(x, nn.functional.softplus(step), -log_rates.exp(), entering, leaving)
        y.sum().backward()

    def ssd(_: int) -> None:
        logs = -nn.functional.softplus(decay)
        keys, queries = entering[:, None], leaving[:, None]
        mix(heads, keys, queries, Decay.of(logs, CHUNK)).sum().backward()

    def mambapy(_: int) -> None:
        from mambapy.pscan import pscan

        delta = nn.functional.softplus(step)
        kept = torch.exp(delta[..., None] * -log_rates.exp().mT)
        added = delta[..., None] * entering[:, :, None] * x[..., None]
        (pscan(kept, added) @ leaving[..., None]).squeeze(3).sum().backward()

    return {"ours, Mamba-1": ours, "ours, SSD": ssd, "mambapy": mambapy}


# ------------------------------------------------------------------------------------------ layers


def _layers() -> dict[str, Callable[[int], object]]:
    """One layer of each kind at the same width, forward and backward, and torch's LSTM."""
    x = torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
    block = Block(Transformer(width=WIDTH, depth=1), Bijection(), Initializer(Stream(0, "layers")))
    sight = Sight(LENGTH, 0, None, None, x.device)

    def mixed(spec: StackSpec) -> Callable[[int], object]:
        mixer = spec.mixer(0)(spec, Initializer(Stream(0, "layers")), 1.0)
        return lambda _: mixer(x, NO_TAP).sum().backward()

    specs = {
        "LSTM": LSTM, "GRU": GRU, "bilinear": Bilinear, "Mamba-1": Mamba, "Mamba-2": Mamba2,
        "linear attention": LinearAttention, "gated delta": GatedDelta,
    }  # fmt: skip
    return {
        "torch.nn.LSTM": lambda _: lstm(x)[0].sum().backward(),
        "transformer block": lambda _: block(x, sight, None, NO_TAP).sum().backward(),
        **{name: mixed(cls(width=WIDTH, depth=1)) for name, cls in specs.items()},
    }


# ------------------------------------------------------------------------------------------ points


def _points() -> dict[str, list[dict[str, float]]]:
    """Time each trainable model forward: called plainly, run without names, and with all names."""
    task = Bijection()
    inputs = task.batch(BATCH, Stream(0, "layers")).inputs
    found = {}
    for name in registry.names("models"):
        spec = registry.resolve("models", name)()
        try:
            network = spec.build(task, Stream(0, "layers"))
        except InvalidInput:
            continue
        found[name] = alternate(_asked(network.eval(), inputs), POINT_ROUNDS, POINT_SLICE_S)
    return found


def _asked(network: Network, inputs: Any) -> dict[str, Callable[[int], object]]:
    def plainly(_: int) -> object:
        with torch.no_grad():
            return network(inputs)

    return {
        "plain": plainly,
        "no names": lambda _: network.run(inputs),
        "all names": lambda _: network.run(inputs, ["*"]),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(everything()))
