"""What it costs to draw a batch of each task and its exact predictive, beside a training step."""

from __future__ import annotations

from pathlib import Path

from beliefspace.cli.console import note
from beliefspace.core import registry
from beliefspace.core.config import content_hash
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.optimizers import AdamW
from beliefspace.windtunnel.recipe import Recipe, Schedule
from beliefspace.windtunnel.tasks.base import Task
from beliefspace.windtunnel.trainer import Trainer
from benchmarks import results
from benchmarks.alternating import MANY_STEPS, alternate, one_thread

MODEL = Transformer()
ROUNDS = 5
SLICE_S = 1.0


def recipes() -> dict[str, Recipe]:
    """Return the recipe of each registered task at its default settings, by the task's name."""
    schedule = Schedule(f"{MANY_STEPS} steps")
    return {
        name: Recipe(registry.resolve("tasks", name)(), MODEL, optimizer=AdamW(), schedule=schedule)
        for name in registry.names("tasks")
    }


def estimate(folder: Path = results.FOLDER) -> float:
    """Return about how many seconds of wall clock are left to measure."""
    left = [n for n, r in recipes().items() if not results.is_kept(folder, *_key(n, r))]
    return len(left) * (ROUNDS * SLICE_S + 3)


def measure(folder: Path = results.FOLDER) -> None:
    """Measure the tasks that are missing, one after another, in this process."""
    everything = recipes()
    results.drop_others(folder, "drawing", dict(_key(n, r) for n, r in everything.items()))
    for name, recipe in everything.items():
        if results.is_kept(folder, *_key(name, recipe)):
            continue
        note(f"drawing, {name}")
        with one_thread():
            rounds = _rounds(recipe)
        facts = {
            "task": name,
            "batch": recipe.schedule.batch,
            "length": recipe.task.length,
            "rounds": rounds,
        }
        results.keep(folder, *_key(name, recipe), facts)


def _key(name: str, recipe: Recipe) -> tuple[str, str]:
    return f"drawing/{name}", content_hash(recipe)


def _rounds(recipe: Recipe) -> list[dict[str, float]]:
    """Time drawing with the predictive, drawing alone, and a training step on sampled targets."""
    trainer, batch, task = Trainer(recipe), recipe.schedule.batch, recipe.task
    stream = Stream(0, "drawing")
    actions = {
        "drawn": lambda number: task.batch(batch, stream, number),
        "with predictive": lambda number: _believed(task, batch, stream, number),
        "step": lambda number: trainer.advance(number, MANY_STEPS),
    }
    return alternate(actions, ROUNDS, SLICE_S)


def _believed(task: Task, batch: int, stream: Stream, number: int) -> object:
    return task.batch(batch, stream, number).predictive
