"""The scan of Mamba-1 (2312.00752), with a backward pass of its own that keeps few states.

The recurrence, per sequence, state n and channel d, from h₀ = 0 (equations 2 and 4 there, with the
step of the input by Euler's rule as in the authors' code):

    hₜ[n, d] = exp(Δₜ[d] A[n, d]) hₜ₋₁[n, d] + Δₜ[d] xₜ[d] Bₜ[n]
    yₜ[d]    = Σₙ Cₜ[n] hₜ[n, d]

Gradients, with Gₜ = ∂loss/∂hₜ, gₜ = ∂loss/∂yₜ, aₜ = exp(Δₜ A) and Mₜ = Gₜ aₜ hₜ₋₁:

    Gₜ = Cₜ gₜ + aₜ₊₁ Gₜ₊₁                ∂A = Σ Δₜ Mₜ over sequences and positions
    ∂Bₜ = Σ_d Gₜ Δₜ xₜ                     ∂(Δₜ xₜ) = Σₙ Gₜ Bₜ
    ∂Cₜ = Σ_d hₜ gₜ                        ∂Δₜ = Σₙ Mₜ A, and through Δₜ xₜ

Symbols:
    b     sequences
    T     positions
    N     states of a channel
    D     channels
    x     input                        ``[b, T, D]``
    Δ     step size, positive          ``[b, T, D]``
    A     rates, negative              ``[N, D]``
    B     input gate                   ``[b, T, N]``
    C     output gate                  ``[b, T, N]``
    h     states                       ``[b, T, N, D]``, never whole

All of h is N times as large as x, and on a CPU the time goes into moving it. So the work is done in
tiles of some sequences and about √T positions, small enough to stay in the processor's caches, in
buffers that are made once and used for every tile. Forward keeps the state at the start of each
tile; backward computes the others again, which costs less than to store and fetch them. Memory
grows as √T. Channels come last because the products spread along them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, sqrt
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

TILE_ENTRIES = 2**18
"""Entries of a tile's states, unless one sequence has more: 1 MiB in float32."""

Tile: TypeAlias = "tuple[slice, slice]"


def selective_scan(
    x: Float[Tensor, "b T D"],
    step_size: Float[Tensor, "b T D"],
    rates: Float[Tensor, "N D"],
    input_gate: Float[Tensor, "b T N"],
    output_gate: Float[Tensor, "b T N"],
) -> Float[Tensor, "b T D"]:
    """Run the recurrence over whole sequences; differentiable once in every argument."""
    rates = rates.contiguous()  # read once for every position
    y: Tensor = _Scan.apply(x, step_size, rates, input_gate, output_gate)  # type: ignore[no-untyped-call]
    return y


def scan_states(
    x: Float[Tensor, "b T D"],
    step_size: Float[Tensor, "b T D"],
    rates: Float[Tensor, "N D"],
    input_gate: Float[Tensor, "b T N"],
) -> Float[Tensor, "b T N D"]:
    """Return every state, one position after another; for looking at them, not for training."""
    state = x.new_zeros(len(x), *rates.shape)
    states = []
    # Unbound rather than indexed: the gradient of an index is as large as all positions.
    for here, step, gate in zip(
        x.unbind(1), step_size.unbind(1), input_gate.unbind(1), strict=True
    ):
        state = next_state(state, here, step, rates, gate)
        states.append(state)
    return torch.stack(states, dim=1)


def next_state(
    state: Float[Tensor, "b N D"],
    x: Float[Tensor, "b D"],
    step_size: Float[Tensor, "b D"],
    rates: Float[Tensor, "N D"],
    input_gate: Float[Tensor, "b N"],
) -> Float[Tensor, "b N D"]:
    """Advance the states by one position."""
    decay = torch.exp(step_size[:, None] * rates)
    return decay * state + (step_size * x)[:, None] * input_gate[..., None]


def read_out(
    states: Float[Tensor, "*rows N D"], output_gate: Float[Tensor, "*rows N"]
) -> Float[Tensor, "*rows D"]:
    """Return Σₙ Cₙ hₙ."""
    return (output_gate[..., None, :] @ states).squeeze(-2)


def _over_channels(
    states: Float[Tensor, "*rows N D"], weights: Float[Tensor, "*rows D"]
) -> Float[Tensor, "*rows N"]:
    """Return Σ_d of states times weights."""
    # A row times a transposed matrix: three times as fast as the matrix times a column.
    return (weights[..., None, :] @ states.mT).squeeze(-2)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, step_size: Tensor, rates: Tensor, gate: Tensor, output_gate: Tensor
    ) -> Tensor:
        plan = _Plan(x, rates)
        starts = x.new_empty(plan.chunks, len(x), *rates.shape)
        starts[:1] = 0
        y = torch.empty_like(x)
        buffers = plan.buffers(x, 2)
        drive = step_size * x
        for chunk, tile in plan.tiles():
            rows = tile[0]
            _, states = _tile(
                buffers, starts[chunk, rows], step_size[tile], rates, gate[tile], drive[tile]
            )
            y[tile] = read_out(states, output_gate[tile])
            if chunk + 1 < plan.chunks:
                starts[chunk + 1, rows] = states[:, -1]
        ctx.save_for_backward(x, step_size, rates, gate, output_gate, starts)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, ...]:
        x, step_size, rates, gate, output_gate, starts = ctx.saved_tensors
        plan = _Plan(x, rates)
        buffers = plan.buffers(x, 3)
        drive = step_size * x
        drive_slope, step_slope = torch.empty_like(x), torch.empty_like(x)
        gate_slope, output_slope = torch.empty_like(gate), torch.empty_like(gate)
        rates_slope = torch.zeros_like(rates)
        later = x.new_zeros(len(x), *rates.shape)  # aₜ₊₁ Gₜ₊₁ at the end of the tile
        for chunk, tile in plan.tiles(backwards=True):
            rows = tile[0]
            start, step, here = starts[chunk, rows], step_size[tile], slope[tile]
            decay, states = _tile(buffers, start, step, rates, gate[tile], drive[tile])
            output_slope[tile] = _over_channels(states, here)
            grown = _view(buffers[2], states.shape)
            torch.mul(here[:, :, None], output_gate[tile][..., None], out=grown)
            factors, slopes = decay.unbind(1), grown.unbind(1)
            slopes[-1].add_(later[rows])
            for t in range(len(slopes) - 1, 0, -1):
                slopes[t - 1].addcmul_(factors[t], slopes[t])
            gate_slope[tile] = _over_channels(grown, drive[tile])
            drive_slope[tile] = read_out(grown, gate[tile])
            moved = decay.mul_(grown)
            later[rows] = moved[:, 0]
            moved[:, 1:] *= states[:, :-1]
            moved[:, 0] *= start
            rates_slope += torch.mul(moved, step[:, :, None], out=states).sum(dim=(0, 1))
            step_slope[tile] = moved.mul_(rates).sum(dim=2)
        return (
            drive_slope * step_size,
            step_slope.addcmul_(drive_slope, x),
            rates_slope,
            gate_slope,
            output_slope,
        )


class _Plan:
    """How the work is cut into tiles."""

    def __init__(self, x: Tensor, rates: Tensor) -> None:
        self._rows, self._length = x.shape[:2]
        self._steps = max(1, ceil(self._length / max(1, round(sqrt(self._length)))))
        self._tile_rows = max(1, TILE_ENTRIES // max(1, self._steps * rates.numel()))
        self._entries = min(self._tile_rows, self._rows) * self._steps * rates.numel()
        self.chunks = ceil(self._length / self._steps)

    def buffers(self, like: Tensor, count: int) -> list[Tensor]:
        """Return memory for the largest tile, ``count`` times."""
        return [like.new_empty(self._entries) for _ in range(count)]

    def tiles(self, *, backwards: bool = False) -> Iterator[tuple[int, Tile]]:
        """Yield number of chunk, and sequences and positions of a tile; in order of time."""
        chunks = range(self.chunks)
        for first in range(0, self._rows, self._tile_rows):
            rows = slice(first, min(first + self._tile_rows, self._rows))
            for chunk in reversed(chunks) if backwards else chunks:
                begin = chunk * self._steps
                yield chunk, (rows, slice(begin, min(begin + self._steps, self._length)))


def _tile(
    buffers: list[Tensor],
    start: Tensor,
    step_size: Tensor,
    rates: Tensor,
    gate: Tensor,
    drive: Tensor,
) -> tuple[Tensor, Tensor]:
    """Compute decays and states of a tile, in the first two buffers."""
    shape = (*step_size.shape[:2], *rates.shape)
    decay, states = _view(buffers[0], shape), _view(buffers[1], shape)
    torch.mul(step_size[:, :, None], rates, out=decay).exp_()
    torch.mul(drive[:, :, None], gate[..., None], out=states)
    before = start
    for factor, here in zip(decay.unbind(1), states.unbind(1), strict=True):
        before = here.addcmul_(factor, before)
    return decay, states


def _view(buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
    return buffer[: torch.Size(shape).numel()].view(shape)
