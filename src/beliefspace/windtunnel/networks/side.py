"""Where a task's header goes in: read like the rest, or injected at every later position.

Symbols:
    n     sequences
    p     header positions that are injected; 0 where the header is read like the rest
    T     positions that the network sees: all, or those after an injected header
    Q     positions whose outputs are wanted
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.errors import InvalidInput
from beliefspace.windtunnel.models.side import Side
from beliefspace.windtunnel.networks.base import Columns, Initializer, Inputs, column_index
from beliefspace.windtunnel.tasks.base import RealInputs, Task


class SideInput(nn.Module):
    """Takes an injected header off the inputs, and maps it to what it adds at every later position.

    Outputs at the header's positions are 0, and cannot be asked for.

    Args:
        side: whether the header is injected.
        task: fixes the header.
        width: of the residual stream.
        make: draws the initial values.
    """

    def __init__(self, side: Side, task: Task, width: int, make: Initializer) -> None:
        super().__init__()
        self._header: tuple[int, ...] = (task.prefix,)
        if isinstance(task.inputs, RealInputs):
            self._header = (task.prefix, task.inputs.features)
        self.skipped = task.prefix if side == "inject" else 0
        self.map: nn.Linear | None = None
        if self.skipped:
            assert isinstance(task.inputs, RealInputs)  # checked by the specification
            self.map = make.linear(self.skipped * task.inputs.features, width)

    def rest(self, inputs: Inputs) -> Inputs:
        """Return the inputs after an injected header."""
        return inputs[:, self.skipped :]

    def forward(self, inputs: Inputs) -> Float[Tensor, "n 1 width"] | None:
        """Return what the injected header at the start of the inputs adds; None without one."""
        if self.map is None:
            return None
        header = torch.as_tensor(inputs[:, : self.skipped], device=self.map.weight.device)
        self._check(tuple(header.shape))
        added: Tensor = self.map(header.flatten(1).to(self.map.weight.dtype))
        return added[:, None]

    def alone(self, header: Inputs) -> Float[Tensor, "n 1 width"] | None:
        """Return what a header adds that comes by itself; None where it is read like the rest.

        Raises:
            InvalidInput: a header of another shape than the task's.
        """
        self._check(tuple(header.shape))
        added: Tensor | None = self(header)
        return added

    def _check(self, shape: tuple[int, ...]) -> None:
        if shape[1:] != self._header:
            expected = ", ".join(str(size) for size in ("n", *self._header))
            raise InvalidInput(f"the task's header is [{expected}]; got {shape}")

    def wanted(self, columns: Columns, x: Float[Tensor, "n T width"]) -> Tensor | None:
        """Return which of the positions that the network sees are wanted; None for all.

        Raises:
            InvalidInput: a column out of range, or in the injected header.
        """
        chosen = column_index(columns, x.shape[1] + self.skipped, x.device)
        if chosen is None or not self.skipped:
            return chosen
        if int(chosen.min()) < self.skipped:
            raise InvalidInput(
                f"the first {self.skipped} positions are a header that is injected, and have no "
                f"outputs; got column {int(chosen.min())}"
            )
        return chosen - self.skipped

    def padded(
        self, outputs: Float[Tensor, "n Q m"], wanted: Tensor | None
    ) -> Float[Tensor, "n Q m"]:
        """Return the outputs with zeros in place of the header, where all were wanted."""
        if not self.skipped or wanted is not None:
            return outputs
        return F.pad(outputs, (0, 0, self.skipped, 0))
