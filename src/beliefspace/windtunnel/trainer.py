"""A network, its optimizer and its data, between two steps of training."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from beliefspace.core.config import content_hash
from beliefspace.core.errors import CorruptFile, InvalidInput
from beliefspace.core.store import Checkpoint
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.objective import loss_nats
from beliefspace.windtunnel.optimization import Optimization, optimization
from beliefspace.windtunnel.recipe import Recipe
from beliefspace.windtunnel.tasks.base import Batch


class Trainer:
    """Everything that the next step depends on.

    Args:
        recipe: of the run.

    Raises:
        InvalidInput: the recipe's device is not there, or its model does not suit its task.
    """

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

    def is_finite(self) -> bool:
        """Whether every parameter is a finite number."""
        return all(bool(torch.isfinite(p).all()) for p in self.network.parameters())

    def tensors(self) -> dict[str, Any]:
        """Return all state, as numpy arrays by name."""
        network = {f"network/{name}": t for name, t in self.network.state_dict().items()}
        optimizer = {f"optimizer/{name}": t for name, t in self.optimization.state().items()}
        return {n: t.detach().cpu().numpy() for n, t in {**network, **optimizer}.items()}

    def restore(self, checkpoint: Checkpoint, recorded: Recipe, where: Path) -> None:
        """Take over the state of a checkpoint.

        Args:
            checkpoint: of a run.
            recorded: the recipe of that run.
            where: the run, for messages.

        Raises:
            CorruptFile: the checkpoint was written under another recipe.
        """
        if checkpoint.meta.get("recipe") != content_hash(recorded):
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


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use so many threads meanwhile."""
    most = 4 * (os.cpu_count() or 1)
    if count > most:
        raise InvalidInput(f"this machine runs at most {most} threads usefully; got {count}")
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _device(name: str) -> torch.device:
    """Return a device that exists here."""
    if name == "meta":
        raise InvalidInput("device 'meta' holds no numbers; give cpu, cuda or mps")
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
