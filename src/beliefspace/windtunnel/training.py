"""One training loop for every task and model, which stops and resumes exactly.

Data are a pure function of (seed, step), so the state of a run is its parameters, its optimizer and
the number of the next step. A run that was stopped, by Ctrl-C, a signal or a killed process, goes
on from its last checkpoint and ends with the same bits as one that was not, on the same machine and
number of threads.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from beliefspace.core.config import content_hash, from_toml, to_toml
from beliefspace.core.environment import environment
from beliefspace.core.errors import CorruptFile, Interrupted, InvalidInput
from beliefspace.core.registry import load_file
from beliefspace.core.store import Checkpoint, Run
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import score
from beliefspace.windtunnel.networks.base import Network
from beliefspace.windtunnel.objective import loss_nats
from beliefspace.windtunnel.optimization import Optimization, optimization
from beliefspace.windtunnel.predictions import predict
from beliefspace.windtunnel.recipe import Recipe, parse_budget, with_explicit_steps
from beliefspace.windtunnel.tasks.base import Batch

_LOOK_SEQUENCES = 256


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes:
        step: steps done, of ``steps``.
        seconds_left: of wall clock, estimated.
        predictions: scored positions seen.
        cpu_seconds: spent on training so far (data and optimizer included, looks and checkpoints
            not).
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
    recipe: Recipe, out: Path, observe: Observer | None = None, checkpoint_seconds: float = 30.0
) -> Run:
    """Train one model and score it.

    Args:
        recipe: everything that the result depends on.
        out: the run directory to make; it must not exist, or be empty.
        observe: called at every look with the progress.
        checkpoint_seconds: wall clock between checkpoints.

    Returns:
        The finished run.

    Raises:
        InvalidInput: if the recipe cannot be run here; nothing is written then.
        Interrupted: on Ctrl-C or SIGTERM; the run can be resumed.
    """
    Run.check_free(out)
    with _threads(recipe.hardware.threads):
        _Trainer(recipe).advance(0, 1)
        resolved = resolve(recipe)
        run = Run.create(out, "train", to_toml(resolved), environment())
        return _finish(run, resolved, observe, checkpoint_seconds)


def resume(path: Path, observe: Observer | None = None, checkpoint_seconds: float = 30.0) -> Run:
    """Go on with a stopped run from its newest whole checkpoint; a finished one is left as it is.

    Raises:
        CorruptFile: if the checkpoint does not belong to the run's recipe.
        RunBusy: if another process works in the directory.
    """
    run = Run.open(path)
    if run.status == "finished":
        return run
    recipe = recipe_of(run)
    with _threads(recipe.hardware.threads):
        return _finish(run, recipe, observe, checkpoint_seconds)


def recipe_of(run: Run) -> Recipe:
    """Read the resolved recipe of a run, after loading the files that its task or model is in."""
    for plugin in run.environment().get("plugins", []):
        load_file(plugin["path"])
    return from_toml(Recipe, run.config_toml(), where=str(run.path / "config.toml"))


def load(path: Path) -> Network:
    """Return the network of a run, with the weights of its newest checkpoint, on the CPU.

    Raises:
        CorruptFile: the newest checkpoint is damaged; an older one is another model.
    """
    run = Run.open(path)
    recipe = recipe_of(run)
    trainer = _Trainer(replace(recipe, hardware=replace(recipe.hardware, device="cpu")))
    checkpoint = run.load_checkpoint()
    if checkpoint.skipped:
        raise CorruptFile(checkpoint.skipped[0])
    trainer.restore(checkpoint, content_hash(recipe), run.path)
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
    return replace(recipe, schedule=replace(recipe.schedule, steps=max(1, math.floor(steps))))


def _seconds_per_step(recipe: Recipe, clock: Callable[[], float], budget: float) -> float:
    """Measure a few steps of a throw-away network, for at most a fiftieth of the budget."""
    trainer = _Trainer(recipe)
    trainer.advance(0, 1)
    trainer.advance(1, 1)
    step, start = 2, clock()
    while step < 7 or clock() - start < min(budget / 50, 10.0):
        trainer.advance(step, 1)
        step += 1
    return (clock() - start) / (step - 2)


class _Trainer:
    """A network, its optimizer and its data, between two steps."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.device = _device(recipe.hardware.device)
        self.network = recipe.model.build(recipe.task, Stream(recipe.seed, "initial"))
        self.network.to(self.device)
        self.optimization: Optimization = optimization(recipe.optimizer, self.network)
        self._stream = Stream(recipe.seed, "train")

    def advance(self, step: int, steps: int) -> tuple[float, int]:
        """Take one step; return its loss in bits and the number of predictions it saw."""
        schedule = self.recipe.schedule
        batch = self._batch(step)
        loss = loss_nats(self.network, self.recipe.task, batch, self.recipe.targets)
        self.network.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        if schedule.clip:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), schedule.clip)
        self.optimization.step(schedule.rate(step, steps))
        return float(loss.detach()) / math.log(2), int(batch.scored.sum())

    def tensors(self) -> dict[str, Any]:
        """Return all state, as numpy arrays by name."""
        network = {f"network/{name}": t for name, t in self.network.state_dict().items()}
        optimizer = {f"optimizer/{name}": t for name, t in self.optimization.state().items()}
        return {n: t.detach().cpu().numpy() for n, t in {**network, **optimizer}.items()}

    def restore(self, checkpoint: Checkpoint, recipe_hash: str, where: Path) -> None:
        """Take over the state of a checkpoint, if it is one of this very recipe."""
        if checkpoint.meta.get("recipe") != recipe_hash:
            raise CorruptFile(
                f"the checkpoint at step {checkpoint.step} in {where} was written under another "
                "config.toml than the one beside it"
            )
        state: dict[str, dict[str, torch.Tensor]] = {"network": {}, "optimizer": {}}
        for name, array in checkpoint.tensors.items():
            part, _, rest = name.partition("/")
            state[part][rest] = torch.from_numpy(array.copy())
        try:
            self.network.load_state_dict(state["network"])
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise CorruptFile(
                f"the checkpoint in {where} does not fit its model: {reason}"
            ) from None
        self.optimization.load(state["optimizer"])

    def _batch(self, step: int) -> Batch:
        draw = self.recipe.task.balanced if self.recipe.balanced else self.recipe.task.batch
        return draw(self.recipe.schedule.batch, self._stream, step)


def _finish(run: Run, recipe: Recipe, observe: Observer | None, checkpoint_seconds: float) -> Run:
    """Take the steps that are left, then score the model."""
    with run.locked():
        trainer = _Trainer(recipe)
        done = _restored(run, recipe, trainer)
        run.set_status("running")
        with _stop_requests() as stop:
            loop = _Loop(run, recipe, trainer, done)
            loop.go(observe, checkpoint_seconds, stop)
        if loop.step < loop.steps:
            run.set_status("interrupted")
            raise Interrupted(
                f"stopped after {loop.step} of {loop.steps} steps; "
                f"go on with: beliefspace resume {run.path}"
            )
        _score(run, recipe, trainer, loop)
        run.set_status("finished")
    return run


def _restored(run: Run, recipe: Recipe, trainer: _Trainer) -> dict[str, Any]:
    """Bring the trainer to the newest checkpoint; return what was counted until then."""
    if not run.checkpoints():
        run.truncate_metrics(after_step=0)
        return {"step": 0, "predictions": 0, "cpu_seconds": 0.0}
    checkpoint = run.load_checkpoint()
    trainer.restore(checkpoint, content_hash(recipe), run.path)
    run.truncate_metrics(after_step=checkpoint.step)
    return {**checkpoint.meta, "step": checkpoint.step}


class _Loop:
    """The steps from the last checkpoint to the end, with looks and checkpoints between them."""

    def __init__(self, run: Run, recipe: Recipe, trainer: _Trainer, done: dict[str, Any]) -> None:
        assert recipe.schedule.steps is not None
        self.run, self.recipe, self.trainer = run, recipe, trainer
        self.step: int = done["step"]
        self.steps: int = recipe.schedule.steps
        self.predictions: int = done["predictions"]
        self.cpu_seconds: float = done["cpu_seconds"]
        self._looked_at = recipe.task.batch(_LOOK_SEQUENCES, Stream(recipe.seed, "validate"))
        self._losses: list[float] = []

    def go(
        self, observe: Observer | None, checkpoint_seconds: float, stop: threading.Event
    ) -> None:
        start, first, saved = time.perf_counter(), self.step, time.perf_counter()
        every = max(1, self.steps // self.recipe.evaluation.looks)
        while self.step < self.steps and not stop.is_set():
            before = time.process_time()
            loss, predictions = self.trainer.advance(self.step, self.steps)
            self.cpu_seconds += time.process_time() - before
            self.predictions += predictions
            self.step += 1
            self._losses.append(loss)
            if self.step % every == 0 or self.step == self.steps:
                pace = (time.perf_counter() - start) / (self.step - first)
                self._look(pace * (self.steps - self.step), observe)
            if time.perf_counter() - saved > checkpoint_seconds:
                self._save()
                saved = time.perf_counter()
        self._save()

    def _look(self, seconds_left: float, observe: Observer | None) -> None:
        believed = predict(self.trainer.network, self.recipe.task, self._looked_at)
        exact = self._looked_at.predictive
        error = abs(believed.entropy_bits() - exact.entropy_bits()).mean()
        progress = Progress(
            self.step,
            self.steps,
            seconds_left,
            self.predictions,
            self.cpu_seconds,
            sum(self._losses) / len(self._losses),
            float(exact.kl_bits(believed).mean()),
            float(error),
        )
        self._losses.clear()
        row = {name: value for name, value in vars(progress).items() if name != "seconds_left"}
        self.run.append_metrics(row)
        if observe is not None:
            observe(progress)

    def _save(self) -> None:
        meta = {
            "recipe": content_hash(self.recipe),
            "predictions": self.predictions,
            "cpu_seconds": self.cpu_seconds,
        }
        self.run.save_checkpoint(self.step, self.trainer.tensors(), meta)


def _score(run: Run, recipe: Recipe, trainer: _Trainer, loop: _Loop) -> None:
    """Measure the finished model on fresh sequences and write the result."""
    final = score(trainer.network, recipe.task, recipe.evaluation.sequences, recipe.evaluation.seed)
    kl_nats = final.kl_bits.mean * math.log(2)
    run.write_result(
        {
            "score": final.to_dict(),
            "training": {
                "targets": recipe.targets,
                "steps": loop.steps,
                "predictions": loop.predictions,
                "sequences": loop.steps * recipe.schedule.batch,
                "cpu_seconds": loop.cpu_seconds,
                "parameters": sum(p.numel() for p in trainer.network.parameters()),
                "operations": recipe.model.operations(recipe.task)
                * recipe.schedule.batch
                * loop.steps,
                "efficiency": 2 * kl_nats * loop.predictions,
            },
        }
    )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into a request to stop after the step; a second one acts."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {s: signal.signal(s, request) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _device(name: str) -> torch.device:
    """Return a device that exists here."""
    available = ["cpu"]
    available += [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    available += ["mps"] if torch.backends.mps.is_available() else []
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise InvalidInput(
            f"device {name!r} is not available here; available: {', '.join(available)}"
        ) from None
    return device
