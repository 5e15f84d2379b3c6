"""One training loop for every task and model, which stops and resumes exactly.

Data are a pure function of (seed, step), so the state of a run is its parameters, its optimizer and
the number of the next step. A run that was stopped, by Ctrl-C, a signal or a killed process, goes
on from its last checkpoint and ends with the same bits as one that was not: on the CPU, with the
same machine, number of threads and version of torch.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from beliefspace.core.config import content_hash, to_toml
from beliefspace.core.environment import environment
from beliefspace.core.errors import BeliefspaceError, CorruptFile, Interrupted
from beliefspace.core.interrupts import stop_requests
from beliefspace.core.store import Run
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import score
from beliefspace.windtunnel.networks.base import Network
from beliefspace.windtunnel.predictions import predict
from beliefspace.windtunnel.recipe import Recipe, parse_budget, recipe_of, with_explicit_steps
from beliefspace.windtunnel.tasks.layout import check_layout
from beliefspace.windtunnel.trainer import Trainer, threads

_LOOK_SEQUENCES = 256
_WARM_STEPS = 3  # taken before the clock starts: the first ones set up memory
_MANY_STEPS = 10**9  # a schedule that measured steps never see the end of


class Diverged(BeliefspaceError):
    """The loss of a run is no longer a number; its last checkpoint is from before."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes:
        step: steps done, of ``steps``.
        seconds_left: of wall clock, estimated.
        predictions: scored positions seen.
        cpu_seconds: of this process, spent on the steps so far (data and optimizer included; looks,
            checkpoints, the work of a device, and steps that a killed process lost are not).
        loss_bits: cross-entropy on the targets, averaged since the last report.
        kl_bits: KL(Bayes || model) on fixed validation sequences.
        entropy_error_bits: mean entropy error on them.
    """

    step: int
    steps: int
    seconds_left: float
    predictions: int
    cpu_seconds: float
    loss_bits: float
    kl_bits: float
    entropy_error_bits: float


Observer = Callable[[Progress], None]


def train(
    recipe: Recipe,
    out: Path,
    observe: Observer | None = None,
    checkpoint_seconds: float = 30.0,
    steps: int | None = None,
) -> Run:
    """Train one model and score it.

    Args:
        recipe: everything that the result depends on.
        out: the run directory to make; it must not exist, or be empty.
        observe: called at every look with the progress.
        checkpoint_seconds: wall clock between checkpoints.
        steps: what the recipe's time budget came to, where that is known already.

    Returns:
        The finished run.

    Raises:
        InvalidInput: if the recipe cannot be run here; nothing is written then.
        Interrupted: on Ctrl-C or SIGTERM; the run can be resumed.
    """
    Run.check_free(out)
    stream, rows = Stream(recipe.seed, "train"), recipe.schedule.batch
    check_layout(recipe.task, recipe.task.batch(rows, stream), rows)
    with threads(recipe.hardware.threads):
        Trainer(recipe).advance(0, _MANY_STEPS)
        resolved = resolve(recipe) if steps is None else _with_steps(recipe, steps)
        run = Run.create(out, "train", to_toml(resolved), environment())
        return _finish(run, resolved, observe, checkpoint_seconds)


def resume(path: Path, observe: Observer | None = None, checkpoint_seconds: float = 30.0) -> Run:
    """Go on with a stopped run from its newest whole checkpoint; a finished one is left as it is.

    Raises:
        CorruptFile: if the checkpoint does not belong to the run's recipe.
        RunBusy: if another process works in the directory.
    """
    run = Run.open(path)
    if run.finished:
        return run
    recipe = recipe_of(run)
    with threads(recipe.hardware.threads):
        return _finish(run, recipe, observe, checkpoint_seconds)


def load(path: Path) -> Network:
    """Return the network of a run, with the weights of its newest checkpoint, on the CPU.

    Raises:
        CorruptFile: the newest checkpoint is damaged; an older one is another model.
    """
    run = Run.open(path)
    recipe = recipe_of(run)
    trainer = Trainer(replace(recipe, hardware=replace(recipe.hardware, device="cpu")))
    checkpoint = run.load_checkpoint()
    if checkpoint.skipped:
        raise CorruptFile(checkpoint.skipped[0])
    trainer.restore(checkpoint, recipe, run.path)
    return trainer.network


def resolve(recipe: Recipe) -> Recipe:
    """Turn the recipe's budget into a number of steps; a time is measured out on the spot."""
    if recipe.schedule.steps is not None:
        return with_explicit_steps(recipe)
    budget = parse_budget(recipe.schedule.budget)
    if budget.unit == "steps":
        steps = budget.amount
    elif budget.unit == "predictions":
        batch = recipe.task.batch(recipe.schedule.batch, Stream(recipe.seed, "train"))
        steps = budget.amount / batch.scored.sum()
    else:
        clock = time.process_time if budget.unit == "cpu-seconds" else time.perf_counter
        steps = budget.amount / _seconds_per_step(recipe, clock, budget.amount)
    return _with_steps(recipe, max(1, math.floor(steps)))


def _with_steps(recipe: Recipe, steps: int) -> Recipe:
    return replace(recipe, schedule=replace(recipe.schedule, steps=steps))


def _seconds_per_step(recipe: Recipe, clock: Callable[[], float], budget: float) -> float:
    """Measure a few steps of a throw-away network, for at most a fiftieth of the budget."""
    trainer = Trainer(recipe)
    for step in range(_WARM_STEPS):
        trainer.advance(step, _MANY_STEPS)
    start, timed = clock(), 0
    while timed < 5 or clock() - start < min(budget / 50, 10.0):
        trainer.advance(_WARM_STEPS + timed, _MANY_STEPS)
        timed += 1
    return (clock() - start) / timed


def _finish(run: Run, recipe: Recipe, observe: Observer | None, checkpoint_seconds: float) -> Run:
    """Take the steps that are left, then score the model."""
    with run.locked():
        if run.finished:
            return run
        trainer = Trainer(recipe)
        loop = _Loop(run, recipe, trainer, _restored(run, recipe, trainer))
        # From here on the directory changes; a checkpoint that does not fit changed nothing.
        run.set_status("running")
        try:
            _go_on(loop, observe, checkpoint_seconds)
        except BaseException as error:
            stopped = isinstance(error, Interrupted | KeyboardInterrupt)
            # A disk that is full must not hide why the run ended.
            with suppress(BeliefspaceError, OSError):
                run.set_status("interrupted" if stopped else "failed")
            raise
        run.set_status("finished")
    return run


def _go_on(loop: _Loop, observe: Observer | None, checkpoint_seconds: float) -> None:
    with stop_requests() as stop:
        loop.go(observe, checkpoint_seconds, stop)
        if loop.done.step < loop.steps:
            raise Interrupted(
                f"stopped after {loop.done.step} of {loop.steps} steps; "
                f"go on with: beliefspace resume {loop.run.path}"
            )
        # A first request to stop does not keep a trained model from being scored.
        loop.run.write_result(_result(loop.recipe, loop.trainer, loop.done))


@dataclass
class _Done:
    """What was done until now; it is saved with every checkpoint."""

    step: int = 0
    predictions: int = 0
    cpu_seconds: float = 0.0
    loss_sum: float = 0.0  # since the last look
    loss_count: int = 0


def _restored(run: Run, recipe: Recipe, trainer: Trainer) -> _Done:
    """Bring the trainer to the newest whole checkpoint; return what was done until then."""
    if not run.checkpoints():
        run.truncate_metrics(after_step=0)
        return _Done()
    checkpoint = run.load_checkpoint()
    for reason in checkpoint.skipped:
        warnings.warn(f"going on from step {checkpoint.step}: {reason}", stacklevel=2)
    trainer.restore(checkpoint, recipe, run.path)
    run.truncate_metrics(after_step=checkpoint.step)
    return _Done(**checkpoint.meta["done"])


def _diverged(run: Run, step: int, what: str) -> Diverged:
    return Diverged(
        f"{what} at step {step} of {run.path} is no finite number; "
        "train again with a lower learning rate"
    )


class _Loop:
    """The steps from the last checkpoint to the end, with looks and checkpoints between them."""

    def __init__(self, run: Run, recipe: Recipe, trainer: Trainer, done: _Done) -> None:
        assert recipe.schedule.steps is not None
        self.run, self.recipe, self.trainer, self.done = run, recipe, trainer, done
        self.steps: int = recipe.schedule.steps
        self._looked_at = recipe.task.batch(_LOOK_SEQUENCES, Stream(recipe.seed, "validate"))

    def go(
        self, observe: Observer | None, checkpoint_seconds: float, stop: threading.Event
    ) -> None:
        start, first, saved = time.perf_counter(), self.done.step, time.perf_counter()
        while self.done.step < self.steps and not stop.is_set():
            self._step()
            if self._is_time_to_look():
                pace = (time.perf_counter() - start) / (self.done.step - first)
                self._look(pace * (self.steps - self.done.step), observe)
            if time.perf_counter() - saved > checkpoint_seconds:
                self._save()
                saved = time.perf_counter()
        self._save()

    def _step(self) -> None:
        before = time.process_time()
        loss, predictions = self.trainer.advance(self.done.step, self.steps)
        if not math.isfinite(loss):
            raise _diverged(self.run, self.done.step, "the loss")
        self.done.cpu_seconds += time.process_time() - before
        self.done.predictions += predictions
        self.done.step += 1
        self.done.loss_sum += loss
        self.done.loss_count += 1

    def _is_time_to_look(self) -> bool:
        """Looks are spread evenly, and the last one is at the end."""
        step, looks = self.done.step, self.recipe.evaluation.looks
        return step * looks // self.steps > (step - 1) * looks // self.steps

    def _look(self, seconds_left: float, observe: Observer | None) -> None:
        if not self.trainer.is_finite():
            raise _diverged(self.run, self.done.step, "a parameter")
        believed = predict(self.trainer.network, self.recipe.task, self._looked_at)
        exact = self._looked_at.predictive
        error = abs(believed.entropy_bits() - exact.entropy_bits()).mean()
        progress = Progress(
            self.done.step,
            self.steps,
            seconds_left,
            self.done.predictions,
            self.done.cpu_seconds,
            self.done.loss_sum / self.done.loss_count,
            float(exact.kl_bits(believed).mean()),
            float(error),
        )
        self.done.loss_sum, self.done.loss_count = 0.0, 0
        row = {name: value for name, value in vars(progress).items() if name != "seconds_left"}
        self.run.append_metrics(row)
        if observe is not None:
            observe(progress)

    def _save(self) -> None:
        meta = {"recipe": content_hash(self.recipe), "done": vars(self.done)}
        self.run.save_checkpoint(self.done.step, self.trainer.tensors(), meta)


def _result(recipe: Recipe, trainer: Trainer, done: _Done) -> dict[str, Any]:
    """Measure the finished model on fresh sequences; return all that the run found."""
    final = score(trainer.network, recipe.task, recipe.evaluation.sequences, recipe.evaluation.seed)
    sequences = done.step * recipe.schedule.batch
    training = {
        "targets": recipe.targets,
        "balanced": recipe.balanced,
        "steps": done.step,
        "predictions": done.predictions,
        "sequences": sequences,
        "cpu_seconds": done.cpu_seconds,
        "parameters": sum(p.numel() for p in trainer.network.parameters()),
        "operations": recipe.model.operations(recipe.task) * sequences,
        # 2 KL n in nats: a model fitted by maximum likelihood has about its number of parameters.
        "efficiency": 2 * final.kl_bits.mean * math.log(2) * done.predictions,
    }
    return {
        "recipe": content_hash(recipe),
        "score": final.to_dict(),
        "training": training,
    }
