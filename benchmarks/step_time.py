"""Time of one training step, against the machine's matrix products and against peers.

Symbols:
    d, L    width and depth of a model
    t       tokens of a batch, sequences x positions
    W       nominal operations of a step, 6 x 12 d² L t: two for each weight of the blocks and token
            in the forward pass, four in the backward
    r       the fastest matrix product among the shapes that the blocks are made of, operations per
            second
    W / r   the ceiling: what the step would take if it were matrix products at that rate
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from beliefspace.cli.console import note
from beliefspace.core.config import content_hash
from beliefspace.studies.bijection import TASK
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.optimizers import AdamW, Muon, OptimizerSpec
from beliefspace.windtunnel.recipe import Recipe, Schedule
from beliefspace.windtunnel.trainer import Trainer
from benchmarks import peers, results
from benchmarks.alternating import MANY_STEPS, cpu_seconds, one_thread
from benchmarks.peers import Step

SIZES = {
    "published": Transformer(width=192, depth=6, heads=6, feed_forward=768),
    "width 64, depth 2": Transformer(width=64, depth=2),
    "width 64, depth 1": Transformer(width=64, depth=1),
    "width 32, depth 1": Transformer(width=32, depth=1, heads=2),
}
BATCH = 64
ALTERNATIONS = 5
SLICE_S = 1.5
"""CPU time that each contestant gets in an alternation, at least."""


def estimate(folder: Path = results.FOLDER) -> float:
    """Return about how many seconds of wall clock are left to measure."""
    missing = [name for name in SIZES if not results.is_kept(folder, *_key(name))]
    return len(missing) * (10 + ALTERNATIONS * 6 * SLICE_S)


def measure(folder: Path = results.FOLDER) -> None:
    """Measure the sizes that are missing, one after another, in this process."""
    results.drop_others(folder, "step_time", dict(map(_key, SIZES)))
    for name, size in SIZES.items():
        if results.is_kept(folder, *_key(name)):
            continue
        note(f"step time, {name}")
        with one_thread():
            rounds = alternate(size)
        facts = {
            "size": name,
            "parameters": size.parameters(TASK),
            "batch": BATCH,
            "tokens": BATCH * TASK.length,
            "nominal_operations": nominal_operations(size),
            "computed_share": computed_share(size),
            "alternations": rounds,
        }
        results.keep(folder, *_key(name), facts)


def _key(name: str) -> tuple[str, str]:
    """Return the name of a size's result, and its identity."""
    return f"step_time/{name.replace(', ', '-').replace(' ', '-')}", content_hash(SIZES[name])


def nominal_operations(size: Transformer) -> float:
    """Return W; embedding, head and attention's own products are not counted."""
    return 6.0 * 12 * size.width**2 * size.depth * BATCH * TASK.length


def computed_share(size: Transformer) -> float:
    """Return the part of W that our step computes.

    In the last block only keys and values (2 of the 12 d²) are needed at every position, the rest
    where something is scored.
    """
    scored = TASK.shown / TASK.length
    return (12 * (size.depth - 1) + 2 + 10 * scored) / (12 * size.depth)


def alternate(
    size: Transformer, alternations: int = ALTERNATIONS, slice_s: float = SLICE_S
) -> list[dict[str, float]]:
    """Time the contestants in turn, several times over, so that all see the same machine.

    Returns:
        For each alternation the CPU seconds per step of each contestant, of all matrix products of
        a step's blocks ("products"), and the rate r ("best_rate").
    """
    contestants = {
        "ours": _our_step(size, AdamW()),
        "ours with Muon": _our_step(size, Muon()),
        "plain loop": peers.plain(TASK, size, BATCH),
        "transformers": peers.transformers(TASK, size, BATCH),
        "transformers with gelu": peers.transformers(TASK, size, BATCH, "gelu"),
    }
    products = _Products(size)
    for step in contestants.values():
        step(0)  # the first step also allocates
    once = sum(cpu_seconds(step, 1) for step in contestants.values())
    steps = max(2, round(slice_s * len(contestants) / once))
    rounds = []
    for turn in range(alternations):
        figures = products.time(slice_s) | dict.fromkeys(contestants, 0.0)
        # Step by step in turn: what slows the machine for a moment slows all alike.
        for number in range(steps):
            for name, step in contestants.items():
                figures[name] += cpu_seconds(step, 2 + turn * steps + number) / steps
        rounds.append(figures)
    return rounds


def _our_step(size: Transformer, spec: OptimizerSpec) -> Step:
    """Return our step, as the training loop takes it."""
    schedule = Schedule(f"{MANY_STEPS} steps", batch=BATCH)
    trainer = Trainer(Recipe(TASK, size, optimizer=spec, schedule=schedule))
    return lambda number: trainer.advance(number, MANY_STEPS)


class _Products:
    """The matrix products of the blocks of a size, forward and backward, and nothing else."""

    def __init__(self, size: Transformer) -> None:
        tokens, width, hidden = BATCH * TASK.length, size.width, size.hidden_width
        self._products: list[tuple[int, float, Callable[[], object]]] = []
        for times, inward, outward in ((4, width, width), (1, width, hidden), (1, hidden, width)):
            x, y = torch.randn(tokens, inward), torch.randn(tokens, outward)
            weight = torch.randn(outward, inward)
            operands = ((x, weight.mT), (y, weight), (y.mT, x))
            for left, right in operands:
                out = torch.empty(left.shape[0], right.shape[1])
                operations = 2.0 * tokens * inward * outward
                self._products.append((times * size.depth, operations, _product(left, right, out)))

    def time(self, slice_s: float) -> dict[str, float]:
        """Return the CPU seconds of all products of a step, and the best rate of a shape."""
        total, best = 0.0, 0.0
        for times, operations, product in self._products:
            product()
            start = time.process_time()
            count = 0
            while count < 3 or time.process_time() - start < slice_s / len(self._products):
                product()
                count += 1
            seconds = (time.process_time() - start) / count
            total += times * seconds
            best = max(best, operations / seconds)
        return {"products": total, "best_rate": best}


def _product(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> Callable[[], object]:
    return lambda: torch.mm(left, right, out=out)
