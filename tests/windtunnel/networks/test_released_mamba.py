"""The state space model of the public code of 2512.22471 against its formulas and its counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import resolve
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.models.mamba import Mamba
from beliefspace.windtunnel.models.released_mamba import ReleasedMamba
from beliefspace.windtunnel.tasks.base import (
    CategoricalOutputs,
    NormalOutputs,
    RealInputs,
    TokenInputs,
)

torch = pytest.importorskip("torch")

from beliefspace.core.taps import NO_TAP, Recorder  # noqa: E402

STREAM = Stream(3, "initial")
SMALL = ReleasedMamba(width=6, depth=2, state_size=3)
# Clamps that are met: in most steps one of the three.
TIGHT = replace(SMALL, step_range=(0.5, 0.8), decay_range=(0.3, 0.6), state_limit=0.2)
SPECS = pytest.mark.parametrize("spec", [SMALL, TIGHT], ids=["wide", "tight"])
SEVEN_TOKENS = TokenInputs(7)
LAST_FOUR = CategoricalOutputs((3, 4, 5, 6))


@dataclass(frozen=True)
class Shape:
    """As much of a task as a model looks at."""

    inputs: TokenInputs | RealInputs = SEVEN_TOKENS
    outputs: CategoricalOutputs | NormalOutputs = LAST_FOUR
    length: int = 9
    prefix: int = 0


TOKENS = Shape()
REALS = Shape(RealInputs(3), NormalOutputs(), prefix=2)
TASKS = pytest.mark.parametrize("task", [TOKENS, REALS], ids=["tokens", "reals"])


def batch(task, rows=5):
    generator = torch.Generator().manual_seed(0)
    if isinstance(task.inputs, TokenInputs):
        return torch.randint(task.inputs.vocabulary, (rows, task.length), generator=generator)
    return torch.randn(rows, task.length, task.inputs.features, generator=generator)


def built(spec=SMALL, task=TOKENS):
    """A network whose every parameter is in use: gains and biases are not 1 or 0."""
    network = spec.build(task, STREAM)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return network


def mixer_by_hand(mixer, spec, u):
    """The formulas of the mixer, position by position, on tensors; counts the clamps met."""
    p = dict(mixer.named_parameters())
    inner, gate = u @ p["inner.weight"].T, u @ p["gate.weight"].T
    h = u.new_zeros(len(u), spec.state_size, spec.channels)
    outputs, met = [], np.zeros(3, dtype=int)

    def clamped(value, low, high, which):
        met[which] += int(((value < low) | (value > high)).sum())
        return torch.minimum(torch.maximum(value, u.new_tensor(low)), u.new_tensor(high))

    for t in range(u.shape[1]):
        x = p["convolution.bias"]
        for back in range(min(t + 1, spec.convolution)):
            x = x + p["convolution.kernel"][back] * inner[:, t - back]
        x = x * torch.sigmoid(x)
        one = x @ p["step_low.weight"].T
        step = torch.log1p(torch.exp(one * p["step_size.weight"].T + p["step_size.bias"]))
        step = clamped(step, *spec.step_range, 0)
        rates = -torch.exp(p["log_rates"])
        decay = torch.exp(torch.einsum("bd,n->bnd", step, rates))
        drive = torch.einsum("bd,bn->bnd", step * x, x @ p["input_gate.weight"].T)
        h = clamped(decay, *spec.decay_range, 1) * h + drive
        h = clamped(h, -spec.state_limit, spec.state_limit, 2)
        y = torch.einsum("bnd,bn->bd", h, x @ p["output_gate.weight"].T) + p["skip"] * x
        y = (y - y.mean(-1, keepdim=True)) / (y.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        y = y * p["norm.weight"] + p["norm.bias"]
        outputs.append((y * gate[:, t] * torch.sigmoid(gate[:, t])) @ p["output.weight"].T)
    return torch.stack(outputs, dim=1), met


@SPECS
def test_the_mixer_is_its_formulas_with_the_same_gradients(spec):
    mixer = built(spec).double().layers[0].mixer
    u = torch.linspace(-2, 2, 5 * 9 * 6, dtype=torch.float64).sin().view(5, 9, 6)
    u.requires_grad_()
    own = mixer(u, NO_TAP)
    expected, met = mixer_by_hand(mixer, spec, u)
    assert (met > 0).all() == (spec is TIGHT)
    torch.testing.assert_close(own, expected, atol=1e-9, rtol=1e-9)
    wanted = [u, *mixer.parameters()]
    weights = torch.linspace(-1, 2, own.numel(), dtype=own.dtype).view_as(own)
    slopes = torch.autograd.grad((weights * own).sum(), wanted, allow_unused=True)
    others = torch.autograd.grad((weights * expected).sum(), wanted, allow_unused=True)
    for slope, other in zip(slopes, others, strict=True):
        torch.testing.assert_close(slope, other, atol=1e-8, rtol=1e-6)


def test_a_state_that_is_not_a_number_becomes_nothing():
    mixer = SMALL.build(TOKENS, STREAM).layers[0].mixer
    state = torch.tensor([np.nan, np.inf, -np.inf, 1e6, 2.0])[None, None].repeat(1, 3, 1)
    nothing = torch.zeros(1, 5)
    moved = mixer._next(state, nothing, nothing + 0.5, torch.zeros(1, 3))[0]
    decay = torch.exp(torch.tensor([-0.5, -1, -1.5]))
    assert torch.equal(moved[:, 0], torch.zeros(3))
    assert torch.equal(moved[:, 1:4], torch.tensor([[100.0, -100.0, 100.0]] * 3))
    torch.testing.assert_close(moved[:, 4], 2 * decay)


def test_no_norm_stands_before_a_block_and_one_inside():
    network = SMALL.build(TOKENS, STREAM)
    norms = {name for name, _ in network.named_parameters() if "norm" in name}
    assert norms == {
        "ends.final_norm.weight",
        *(f"layers.{i}.mixer.norm.{part}" for i in (0, 1) for part in ("weight", "bias")),
    }


# ---------------------------------------------------------------- specification


@pytest.mark.parametrize(
    ("spec", "vocabulary", "outcomes", "millions"),
    [
        (ReleasedMamba.published(), 40, 20, 1.44),
        (ReleasedMamba(width=256, depth=9), 105, 5, 3.77),
    ],
    ids=["bijection", "hmm"],
)
def test_the_published_sizes_have_the_published_counts(spec, vocabulary, outcomes, millions):
    task = Shape(TokenInputs(vocabulary), CategoricalOutputs(tuple(range(outcomes))), 37)
    assert round(spec.parameters(task) / 1e6, 2) == millions


@TASKS
@pytest.mark.parametrize("settings", [{}, {"width": 17, "expand": 1}, {"convolution": 1}])
def test_the_count_equals_the_built_network(task, settings):
    spec = replace(SMALL, **settings)
    network = spec.build(task, STREAM)
    assert spec.parameters(task) == sum(p.numel() for p in network.parameters())
    assert spec.operations(task) > 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"feed_forward": 8}, "mamba-released has no feed-forward, so feed_forward is 0; got 8"),
        ({"feed_forward": None}, "so feed_forward is 0; got None"),
        ({"state_size": 0}, "state_size is a whole number of at least 1"),
        ({"expand": 0}, "expand is a whole number of at least 1"),
        ({"convolution": 0}, "convolution is a whole number of at least 1"),
        ({"step_range": (0.0, 1.0)}, "each end of step_range is a finite number greater than 0"),
        ({"step_range": (1.0,)}, "step_range is two numbers, the least and the greatest"),
        ({"step_range": (1.0, 0.1)}, r"positive, the lesser first; got \(1.0, 0.1\)"),
        ({"decay_range": (0.1, 1.1)}, r"from 0 to 1, the lesser first; got \(0.1, 1.1\)"),
        ({"state_limit": 0}, "state_limit is a finite number greater than 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        ReleasedMamba(**settings)


def test_it_goes_by_its_own_name():
    assert resolve("models", "mamba-released") is ReleasedMamba
    assert not issubclass(ReleasedMamba, Mamba)


def test_the_same_stream_gives_the_same_bits_and_leaves_torch_alone():
    before = torch.get_rng_state()
    first, second = SMALL.build(TOKENS, STREAM), SMALL.build(TOKENS, STREAM)
    other = SMALL.build(TOKENS, Stream(4, "initial"))
    assert torch.equal(torch.get_rng_state(), before)
    constant = ("norm.weight", "bias", "log_rates", "skip")
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])
        assert torch.equal(value, other.state_dict()[name]) == name.endswith(constant)


# ---------------------------------------------------------------- the network


@TASKS
@SPECS
def test_no_output_depends_on_a_later_input(spec, task):
    network, x = built(spec, task), batch(task)
    with torch.no_grad():
        plain = network(x)
        for at in range(task.length):
            other = x.clone()
            other[:, at] = (x[:, at] + 1) % 7
            changed = network(other)
            torch.testing.assert_close(changed[:, :at], plain[:, :at], atol=1e-6, rtol=1e-6)
            assert not torch.allclose(changed[:, at], plain[:, at])


@TASKS
@SPECS
@pytest.mark.parametrize(
    ("double", "tolerance"), [(False, 1e-5), (True, 1e-9)], ids=["float32", "float64"]
)
def test_streamed_outputs_are_those_of_the_whole(spec, task, double, tolerance):
    network, x = built(spec, task), batch(task)
    if double:
        network, x = network.double(), x.double() if x.is_floating_point() else x
    with torch.no_grad():
        whole = network(x)[:, task.prefix :]
        stream = network.stream(x[:, : task.prefix])
        streamed = torch.stack([stream(x[:, t]) for t in range(task.prefix, task.length)], dim=1)
    assert streamed.dtype == whole.dtype
    torch.testing.assert_close(streamed, whole, atol=tolerance, rtol=tolerance)


def test_an_injected_header_is_streamed_as_it_is_read_whole():
    network, x = built(replace(SMALL, side="inject"), REALS), batch(REALS)
    with torch.no_grad():
        whole = network(x)
        assert (whole[:, :2] == 0).all()
        stream = network.stream(x[:, :2])
        streamed = torch.stack([stream(x[:, t]) for t in range(2, 9)], dim=1)
    torch.testing.assert_close(streamed, whole[:, 2:], atol=1e-5, rtol=1e-5)


def bump(value):
    """Change a value by something that no norm takes out again."""
    return 1.5 * value + torch.linspace(-1, 1, value.shape[-1])


@pytest.mark.parametrize("name", [point.name for point in built().points()])
def test_every_point_is_live(name):
    network, x = built(), batch(TOKENS)
    plain, nothing = network.run(x)
    assert dict(nothing.values) == {}
    read, trace = network.run(x, [name])
    torch.testing.assert_close(read, plain, atol=1e-5, rtol=1e-5)
    edited, again = network.edit({name: bump}).run(x, [name])
    assert (edited - plain).abs().max() > 1e-3
    assert torch.equal(again[name], bump(trace[name]))
    assert torch.equal(network.run(x)[0], plain)


def test_points_are_shaped_as_said():
    network = built(TIGHT)
    trace = network.record(batch(TOKENS), ["*"])
    sizes = {"batch": 5, "time": 9, "width": 6, "channels": 12, "state": 3, "outputs": 4}
    for point in network.points():
        assert trace[point.name].shape == tuple(sizes[axis] for axis in point.shape.split())
    assert trace["layers.0.state"].abs().max() == np.float32(0.2)
    steps = trace["layers.0.step_size"]
    assert np.float32(0.5) <= steps.min() <= steps.max() <= np.float32(0.8)


def test_gradients_reach_every_parameter_with_and_without_the_states_open():
    network, x = built().double(), batch(TOKENS)
    network(x).square().sum().backward()
    slopes = {name: p.grad.clone() for name, p in network.named_parameters()}
    network.zero_grad()
    network(x, tap=Recorder(["layers.0.state", "layers.1.state"])).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert slopes[name].abs().max() > 0
        torch.testing.assert_close(slopes[name], parameter.grad, atol=1e-9, rtol=1e-6)


def test_a_few_steps_teach_it_to_name_the_token_before():
    spec = ReleasedMamba(width=16, depth=1, state_size=4)
    task = Shape(TokenInputs(4), CategoricalOutputs((0, 1, 2, 3)))
    network = spec.build(task, STREAM)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    losses = []
    for seed in range(80):
        x = torch.randint(4, (16, 9), generator=torch.Generator().manual_seed(seed))
        given, wanted = network(x)[:, 1:].flatten(0, 1), x[:, :-1].flatten()
        loss = torch.nn.functional.cross_entropy(given, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 < losses[0]
