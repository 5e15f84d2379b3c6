"""What holds for every residual stack, as checks of a specification; its own tests are beside."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from beliefspace.core.streams import Stream
from beliefspace.windtunnel.tasks.base import (
    CategoricalOutputs,
    NormalOutputs,
    RealInputs,
    TokenInputs,
)

STREAM = Stream(3, "initial")
SEVEN_TOKENS = TokenInputs(7)
FOUR = CategoricalOutputs((3, 4, 5, 6))


@dataclass(frozen=True)
class Shape:
    """As much of a task as a model looks at."""

    inputs: TokenInputs | RealInputs = SEVEN_TOKENS
    outputs: CategoricalOutputs | NormalOutputs = FOUR
    length: int = 11
    prefix: int = 0


TOKENS = Shape()
REALS = Shape(RealInputs(3), NormalOutputs())
HEADER = Shape(RealInputs(3), FOUR, prefix=3)
TASKS = (TOKENS, REALS, HEADER)


def batch(task, rows=4, length=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    length = length or task.length
    if isinstance(task.inputs, TokenInputs):
        return torch.randint(task.inputs.vocabulary, (rows, length), generator=generator)
    return torch.randn(rows, length, task.inputs.features, generator=generator)


def built(spec, task=TOKENS):
    """A network whose every parameter is in use: gains and biases are not 1 or 0."""
    network = spec.build(task, STREAM)
    stirred(network)
    return network


def stirred(module, size=0.2):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(size * noise)


def streamed(network, x, header):
    """Outputs after the header, from the recurrent form."""
    step = network.stream(x[:, :header])
    with torch.no_grad():
        return torch.stack([step(x[:, t]) for t in range(header, x.shape[1])], dim=1)


def check_count(spec):
    for task in TASKS:
        network = spec.build(task, STREAM)
        assert spec.parameters(task) == sum(p.numel() for p in network.parameters()), (spec, task)


def check_recurrent_form(spec):
    """The same numbers one position at a time, to single and to double precision."""
    for task in TASKS:
        network, x = built(spec, task), batch(task)
        for dtype, error in ((torch.float32, 1e-5), (torch.float64, 1e-9)):
            network.to(dtype)
            with torch.no_grad():
                whole = network(x)[:, task.prefix :]
            scale = float(whole.abs().max())
            assert (streamed(network, x, task.prefix) - whole).abs().max() < error * scale


def check_causal(spec):
    network = built(spec, REALS).double()
    x = batch(REALS)
    with torch.no_grad():
        before = network(x)
        for at in range(1, REALS.length):
            other = x.clone()
            other[:, at:] += 1
            after = network(other)
            torch.testing.assert_close(after[:, :at], before[:, :at], rtol=0, atol=1e-12)
            assert (after[:, at] - before[:, at]).abs().max() > 1e-6


def check_points(spec):
    """Reading changes nothing, shapes are as stated, and an edit of any point shows."""
    for task in TASKS:
        network, x = built(spec, task).double(), batch(task)
        with torch.no_grad():
            plain = network(x)
        points = {point.name: point for point in network.points()}
        read, trace = network.run(x, list(points))
        torch.testing.assert_close(read, plain, rtol=0, atol=1e-9)
        assert list(trace) == list(points)
        for name, point in points.items():
            value = trace[name]
            assert value.shape == _stated(point.shape, spec, task, value), name
            alone, kept = network.run(x, [name])
            torch.testing.assert_close(alone, plain, rtol=0, atol=1e-9)
            torch.testing.assert_close(kept[name], value, rtol=0, atol=1e-9)
            edited, _ = network.run(x, edits={name: lambda v: v * 1.5 + 0.1})
            assert (edited - plain).abs().max() > 1e-4, name


def check_seed(spec):
    """The same stream gives the same bits, another other ones; torch's generator is left alone."""
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, again = spec.build(TOKENS, STREAM), spec.build(TOKENS, STREAM)
    other = spec.build(TOKENS, Stream(4, "initial"))
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    assert any(
        not torch.equal(value, other.state_dict()[name])
        for name, value in first.state_dict().items()
    )


def check_chunks(small, whole):
    """Two specifications that differ by the chunk alone are one function, gradients included."""
    x = batch(REALS, length=14)
    outputs, slopes = [], []
    for spec in (small, whole):
        network = built(spec, REALS).double()
        y = network(x)
        y.square().sum().backward()
        outputs.append(y.detach())
        slopes.append(torch.cat([p.grad.flatten() for p in network.parameters()]))
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-9)
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-9)


def check_learns(spec, steps=40):
    """It comes to tell whether token 0 has been seen."""
    network = spec.build(TOKENS, STREAM)
    adam = torch.optim.Adam(network.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        x = batch(TOKENS, rows=32, seed=step)
        seen = (x == 0).cumsum(1).clamp(max=1)
        loss = torch.nn.functional.cross_entropy(network(x).flatten(0, 1), seen.flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.4 < losses[0]


def _stated(shape, spec, task, value):
    sizes = {
        "batch": 4,
        "time": task.length,
        "width": spec.width,
        "heads": getattr(spec, "head_count", None),
        "head_width": getattr(spec, "head_width", None),
        "head_width+1": getattr(spec, "head_width", 0) + 1,
        "state_size": getattr(spec, "state_size", None),
        "outputs": value.shape[-1],
    }
    return tuple(sizes[axis] for axis in shape.split())
