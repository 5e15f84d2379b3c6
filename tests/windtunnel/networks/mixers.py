"""Checks that tests of architectures share, beside those of the conformance suite.

The suite looks at tiny models, in single precision; these are for every setting, to the digits of
double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from beliefspace.core.streams import Stream
from beliefspace.core.taps import NO_TAP, Recorder
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


def built(spec, task=TOKENS, size=0.2):
    """A network whose every parameter is in use: gains and biases are not 1 or 0."""
    network = spec.build(task, STREAM)
    stirred(network, size)
    return network


def stirred(module, size=0.2):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(size * noise)


def tasks_of(spec):
    return (HEADER,) if spec.side == "inject" else TASKS


def check_constants(spec, endings):
    """Parameters so named, and no others, start as the same numbers whatever the stream."""
    one, other = (spec.build(TOKENS, Stream(seed, "initial")).state_dict() for seed in (3, 4))
    for name, value in one.items():
        assert torch.equal(value, other[name]) == name.endswith(endings), name


def check_formulas(mixer, by_hand, x):
    """In double precision a mixer is what its formulas say, gradients included."""
    x = x.double().requires_grad_()
    leaves = [x, *mixer.double().parameters()]
    outputs, slopes = [], []
    for y in (mixer(x, NO_TAP), by_hand(mixer, x)):
        weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).sin().view_as(y)
        outputs.append(y.detach())
        slopes.append(torch.autograd.grad((weights * y).sum(), leaves, allow_unused=True))
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-9)
    for own, expected in zip(*slopes, strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-9)


def check_setting(spec, own_sizes=lambda layer: {}):
    """What a setting could break: the count, the recurrent form, the path with points open."""
    check_count(spec)
    check_recurrent_form(spec)
    check_opened(spec, own_sizes)


def check_count(spec):
    for task in tasks_of(spec):
        network = spec.build(task, STREAM)
        assert spec.parameters(task) == sum(p.numel() for p in network.parameters()), (spec, task)
        assert spec.operations(task) > 0


def check_recurrent_form(spec):
    """The same numbers one position at a time, to single and to double precision.

    An injected header has no outputs.
    """
    for task in tasks_of(spec):
        network, x = built(spec, task), batch(task)
        for dtype, error in ((torch.float32, 1e-5), (torch.float64, 1e-9)):
            with torch.no_grad():
                whole = network.to(dtype)(x)
            assert spec.side == "prefix" or not whole[:, : task.prefix].any()
            step, scale = network.stream(x[:, : task.prefix]), float(whole.abs().max())
            with torch.no_grad():
                for t in range(task.prefix, task.length):
                    y = step(x[:, t])
                    assert y.dtype == dtype
                    assert (y - whole[:, t]).abs().max() < error * scale


def check_opened(spec, own_sizes):
    """With every point read outputs are the same to double precision; shapes are as stated."""
    for task in tasks_of(spec):
        network, x = built(spec, task).double(), batch(task)
        read, trace = network.run(x, ["*"])
        torch.testing.assert_close(read, network.run(x)[0], rtol=0, atol=1e-9)
        length = task.length - (task.prefix if spec.side == "inject" else 0)
        sizes = {
            "batch": len(x),
            **dict.fromkeys(("time", "query_time", "key_time"), length),
            "width": spec.width,
            "outputs": read.shape[2],
            "heads": getattr(spec, "head_count", None),
            "head_width": getattr(spec, "head_width", None),
            "head_width+1": getattr(spec, "head_width", 0) + 1,
            "channels": getattr(spec, "channels", None),
        }
        sizes["state"] = sizes["state_size"] = getattr(spec, "state_size", None)
        for point in network.points():
            layer = int(point.name.split(".")[1]) if "." in point.name else None
            own = sizes | (own_sizes(layer) if layer is not None else {})
            stated = tuple(own[axis] for axis in point.shape.split())
            assert tuple(trace[point.name].shape) == stated, point


def check_open_gradients(spec):
    """With the states asked for, torch differentiates another path to the same gradients."""
    slopes = []
    for names in ((), [f"layers.{layer}.state" for layer in range(spec.depth)]):
        network = built(spec).double()
        network(batch(TOKENS), tap=Recorder(names)).square().sum().backward()
        slopes.append([p.grad for p in network.parameters()])
    for plain, opened in zip(*slopes, strict=True):
        torch.testing.assert_close(plain, opened, rtol=1e-6, atol=1e-9)


def check_inner_slopes(network, names):
    """The gradient comes to what is inside a mixer, and a trace has it."""
    _, trace = network.run(batch(TOKENS), names, gradients=lambda y: y.square().sum())
    assert all(trace.gradients[name].abs().max() > 0 for name in names)


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


def check_operations_beyond_a_chunk(spec):
    """They grow linearly there."""
    once, twice, four = (spec.mixer_operations(0, length) for length in (128, 256, 512))
    assert four - twice == 2 * (twice - once)
