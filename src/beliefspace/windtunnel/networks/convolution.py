"""A short causal convolution of every channel by itself.

    y_t = bias + Σ_j kernel_j x_{t-j},   j = 0 ... taps - 1,   x before the first position 0

Written as shifted multiply-adds: on a CPU torch's grouped convolution takes more than twice as
long. Backward is written out too, since the gradient of each shifted slice would otherwise be
padded with zeros to full size before it is added.

Symbols:
    n     sequences
    T     positions
    w     channels
    j     how far back
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from beliefspace.windtunnel.networks.base import Initializer


class CausalConvolution(nn.Module):
    """Each channel's weighted sum of its last ``taps`` values.

    Args:
        channels: w.
        taps: positions that a sum spans, itself counted.
        make: draws the initial kernel.
    """

    def __init__(self, channels: int, taps: int, make: Initializer) -> None:
        super().__init__()
        # No map from a space to another: it is not called weight, lest it be orthogonalised (Muon).
        self.kernel = make.normal(taps, channels, deviation=taps**-0.5)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Float[Tensor, "n T w"]) -> Float[Tensor, "n T w"]:
        """Convolve along the positions."""
        convolved: Tensor = _Convolution.apply(x, self.kernel, self.bias)  # type: ignore[no-untyped-call]
        return convolved

    def start(self, x: Float[Tensor, "n w"]) -> Float[Tensor, "n past w"]:
        """Return the values before the first position."""
        return x.new_zeros(len(x), len(self.kernel) - 1, x.shape[1])

    def step(
        self, x: Float[Tensor, "n w"], past: Float[Tensor, "n past w"]
    ) -> tuple[Float[Tensor, "n w"], Float[Tensor, "n past w"]]:
        """Return the sum at one position, and the values that the next one needs."""
        seen = torch.cat((past, x[:, None]), dim=1)
        return (seen * self.kernel.flip(0)).sum(1) + self.bias, seen[:, 1:]


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, kernel)
        y = torch.addcmul(bias, x, kernel[0])
        for back in range(1, min(len(kernel), x.shape[1])):
            y[:, back:].addcmul_(x[:, :-back], kernel[back])
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, kernel = ctx.saved_tensors
        by_x = slope * kernel[0]
        by_kernel = torch.zeros_like(kernel)
        by_kernel[0] = (slope * x).sum((0, 1))
        for back in range(1, min(len(kernel), x.shape[1])):
            by_x[:, :-back].addcmul_(slope[:, back:], kernel[back])
            by_kernel[back] = (slope[:, back:] * x[:, :-back]).sum((0, 1))
        return by_x, by_kernel, slope.sum((0, 1))
