"""Train a small model again and again in a child that is killed at random steps, until it finishes.

Run as a program: ``exact_resume.py OPTIMIZER TARGETS DIRECTORY SEED``. Trains once without
interruption and once with kills, and prints the number of kills and the number of parameters that
differ. The child is forked before any arithmetic, so that torch is imported once.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

from beliefspace.core.store import Run
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.optimizers import AdamW, Muon
from beliefspace.windtunnel.recipe import Evaluation, Recipe, Schedule
from beliefspace.windtunnel.tasks.bijection import Bijection
from beliefspace.windtunnel.training import resume, train

STEPS = 60


def main() -> None:
    optimizer, targets, directory, seed = sys.argv[1:]
    recipe = Recipe(
        Bijection(6),
        Transformer(width=16, depth=1),
        optimizer={"adamw": AdamW(), "muon": Muon()}[optimizer],
        schedule=Schedule(f"{STEPS} steps", batch=12),
        targets=targets,
        balanced=True,
        evaluation=Evaluation(sequences=8, looks=STEPS),
    )
    whole, broken = Path(directory) / "whole", Path(directory) / "broken"
    in_child(lambda: train(recipe, whole, checkpoint_seconds=1e9), kill_at=None)
    chance = random.Random(int(seed))
    kills, reached = 0, 0
    while reached < STEPS:
        kill_at = chance.randint(reached + 1, reached + 25)
        killed = in_child(lambda: attempt(recipe, broken), kill_at)
        kills += killed
        reached = Run.open(broken).checkpoints()[-1] if killed else STEPS
    print(kills, differing(whole, broken))


def attempt(recipe: Recipe, out: Path) -> None:
    """Start or go on, with a checkpoint after every third step or so."""
    if out.exists():
        resume(out, tell, checkpoint_seconds=0.02)
    else:
        train(recipe, out, tell, checkpoint_seconds=0.02)


def tell(progress) -> None:
    os.write(1 if PIPE is None else PIPE, f"{progress.step}\n".encode())


PIPE: int | None = None


def in_child(work, kill_at: int | None) -> bool:
    """Do the work in a fork and SIGKILL it when it says that it reached a step."""
    global PIPE
    read, PIPE = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        work()
        os._exit(0)
    os.close(PIPE)
    with os.fdopen(read) as lines:
        for line in lines:
            if kill_at is not None and int(line) >= kill_at:
                os.kill(child, signal.SIGKILL)
                break
    _, status = os.waitpid(child, 0)
    if status and not os.WIFSIGNALED(status):
        raise SystemExit("the child failed")
    return os.WIFSIGNALED(status)


def differing(whole: Path, broken: Path) -> int:
    one, other = (Run.open(path).load_checkpoint() for path in (whole, broken))
    assert one.step == other.step == STEPS
    assert one.tensors.keys() == other.tensors.keys()
    assert Run.open(whole).metrics()[-1]["kl_bits"] == Run.open(broken).metrics()[-1]["kl_bits"]
    return sum(one.tensors[name].tobytes() != other.tensors[name].tobytes() for name in one.tensors)


if __name__ == "__main__":
    main()
