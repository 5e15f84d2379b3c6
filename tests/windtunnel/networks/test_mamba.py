"""Mamba-1 against loops written out, and its scan with a backward pass of its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import resolve
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.models.mamba import Mamba
from beliefspace.windtunnel.tasks.base import (
    CategoricalOutputs,
    NormalOutputs,
    RealInputs,
    TokenInputs,
)

torch = pytest.importorskip("torch")

from beliefspace.core.taps import NO_TAP, Recorder  # noqa: E402
from beliefspace.windtunnel.networks import selective_scan as scan  # noqa: E402

STREAM = Stream(3, "initial")
SMALL = Mamba(width=6, depth=2, state_size=3)
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
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return network


# ---------------------------------------------------------------- the scan


def operands(rows, length, channels, states, dtype=torch.float64, seed=0):
    """Arguments of the scan: x, step size, rates, input gate, output gate."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    drawn = (
        normal(rows, length, channels),
        torch.nn.functional.softplus(normal(rows, length, channels) - 1),
        -torch.exp(normal(states, channels)),
        normal(rows, length, states),
        normal(rows, length, states),
    )
    return [value.requires_grad_() for value in drawn]


def by_single_numbers(x, step_size, rates, input_gate, output_gate):
    """The recurrence, one state of one channel at a time."""
    rows, length, channels = x.shape
    y = np.zeros(x.shape)
    for row, channel, state in np.ndindex(rows, channels, len(rates)):
        h = 0.0
        for t in range(length):
            step = step_size[row, t, channel]
            h = np.exp(step * rates[state, channel]) * h
            h += step * x[row, t, channel] * input_gate[row, t, state]
            y[row, t, channel] += output_gate[row, t, state] * h
    return y


def by_plain_loop(x, step_size, rates, input_gate, output_gate):
    """The recurrence, differentiated by torch itself."""
    h = torch.zeros(len(x), *rates.shape, dtype=x.dtype)
    outputs = []
    for t in range(x.shape[1]):
        decay = torch.exp(torch.einsum("bd,nd->bnd", step_size[:, t], rates))
        h = decay * h + torch.einsum("bd,bn->bnd", step_size[:, t] * x[:, t], input_gate[:, t])
        outputs.append(torch.einsum("bnd,bn->bd", h, output_gate[:, t]))
    return torch.stack(outputs, dim=1)


# One position; fewer tiles than rows; several rows in a tile, and a last tile that is smaller.
SIZES = [(2, 1, 3, 2), (3, 10, 4, 5), (7, 17, 2, 3), (1, 40, 5, 1)]


@pytest.mark.parametrize("entries", [1, 40, 2**17])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_scan_is_the_recurrence_whatever_its_tiles(sizes, entries, monkeypatch):
    monkeypatch.setattr(scan, "TILE_ENTRIES", entries)
    given = operands(*sizes)
    y = scan.selective_scan(*given)
    plain = by_plain_loop(*given)
    expected = by_single_numbers(*(value.detach().numpy() for value in given))
    assert y.detach().numpy() == pytest.approx(expected, abs=1e-9)
    weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)
    slopes = torch.autograd.grad((weights * y).sum(), given)
    for slope, other in zip(
        slopes, torch.autograd.grad((weights * plain).sum(), given), strict=True
    ):
        torch.testing.assert_close(slope, other, atol=1e-9, rtol=1e-9)


def test_gradients_of_the_scan_in_float32_agree_to_a_millionth():
    given = operands(8, 40, 32, 16, dtype=torch.float32)
    slopes = torch.autograd.grad(scan.selective_scan(*given).square().sum(), given)
    exact = [value.detach().double().requires_grad_() for value in given]
    others = torch.autograd.grad(by_plain_loop(*exact).square().sum(), exact)
    for slope, other in zip(slopes, others, strict=True):
        assert (slope - other).abs().max() <= 1e-6 * other.abs().max()


def test_the_scan_keeps_about_as_many_states_as_the_root_of_the_length():
    """Counted, not timed: positions whose state is kept for the backward pass."""
    kept = {}
    for length in (16, 64, 256):
        y = scan.selective_scan(*operands(1, length, 4, 8))
        saved = [value for value in y.grad_fn.saved_tensors if value.dim() == 4]
        kept[length] = sum(value.shape[0] for value in saved)
    assert kept == {16: 4, 64: 8, 256: 16}


def test_states_one_after_another_are_those_of_the_scan():
    x, step_size, rates, input_gate, output_gate = operands(3, 11, 4, 5)
    states = scan.scan_states(x, step_size, rates, input_gate)
    assert states.shape == (3, 11, 5, 4)
    torch.testing.assert_close(
        scan.read_out(states, output_gate),
        scan.selective_scan(x, step_size, rates, input_gate, output_gate),
        atol=1e-9,
        rtol=1e-9,
    )


# ---------------------------------------------------------------- the mixer


def mixer_by_hand(mixer, u):
    """The formulas of the mixer, position by position, in numpy."""
    p = {name: value.detach().numpy() for name, value in mixer.named_parameters()}

    def silu(value):
        return value / (1 + np.exp(-value))

    rows, length, _ = u.shape
    inner, gate = u @ p["inner.weight"].T, u @ p["gate.weight"].T
    h = np.zeros((rows, *p["log_rates"].shape))
    outputs = []
    for t in range(length):
        x = p["convolution.bias"] + sum(
            p["convolution.kernel"][back] * inner[:, t - back]
            for back in range(len(p["convolution.kernel"]))
            if back <= t
        )
        x = silu(x)
        low = x @ p["step_low.weight"].T
        step = np.log1p(np.exp(low @ p["step_size.weight"].T + p["step_size.bias"]))
        b, c = x @ p["input_gate.weight"].T, x @ p["output_gate.weight"].T
        h = np.exp(-step[:, None] * np.exp(p["log_rates"])) * h
        h = h + (step * x)[:, None] * b[..., None]
        y = (c[..., None] * h).sum(axis=1) + p["skip"] * x
        outputs.append((y * silu(gate[:, t])) @ p["output.weight"].T)
    return np.stack(outputs, axis=1)


@pytest.mark.parametrize("convolution", [1, 4, 12])
def test_the_mixer_is_its_formulas(convolution):
    network = built(replace(SMALL, convolution=convolution)).double()
    mixer = network.layers[0].mixer
    u = torch.linspace(-2, 2, 5 * 9 * 6, dtype=torch.float64).sin().view(5, 9, 6)
    with torch.no_grad():
        assert mixer(u, NO_TAP).numpy() == pytest.approx(mixer_by_hand(mixer, u.numpy()), abs=1e-9)


def test_at_the_start_rates_are_whole_numbers_and_step_sizes_span_their_range():
    mixer = Mamba(width=8, depth=1, state_size=4).build(TOKENS, STREAM).layers[0].mixer
    rates = mixer.log_rates.exp().detach().numpy()
    assert rates == pytest.approx(np.repeat([[1], [2], [3], [4]], 16, axis=1))
    steps = torch.nn.functional.softplus(mixer.step_size.bias).detach().numpy()
    assert steps == pytest.approx(np.geomspace(0.001, 0.1, 16), rel=1e-4)


# ---------------------------------------------------------------- specification


def test_the_specification_imports_no_torch():
    code = (
        "import sys; from beliefspace.core.registry import resolve; "
        "resolve('models', 'mamba')(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert resolve("models", "mamba") is Mamba


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"state_size": 0}, "state_size is a whole number of at least 1; got 0"),
        ({"expand": 1.5}, "expand is a whole number of at least 1; got 1.5"),
        ({"convolution": 0}, "convolution is a whole number of at least 1; got 0"),
        ({"width": 0}, "width is a whole number"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        Mamba(**settings)


@TASKS
@pytest.mark.parametrize(
    "settings",
    [{}, {"width": 17}, {"feed_forward": 0, "expand": 1}, {"convolution": 1, "state_size": 1}],
)
def test_the_count_equals_the_built_network(task, settings):
    spec = replace(SMALL, **settings)
    network = spec.build(task, STREAM)
    assert spec.parameters(task) == sum(p.numel() for p in network.parameters())
    assert spec.operations(task) > 0


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
def test_no_output_depends_on_a_later_input(task):
    network, x = built(task=task), batch(task)
    with torch.no_grad():
        plain = network(x)
        for at in range(task.length):
            other = x.clone()
            other[:, at] = (x[:, at] + 1) % 7
            changed = network(other)
            torch.testing.assert_close(changed[:, :at], plain[:, :at], atol=1e-6, rtol=1e-6)
            assert not torch.allclose(changed[:, at], plain[:, at])


@TASKS
@pytest.mark.parametrize("convolution", [1, 4])
@pytest.mark.parametrize(
    ("double", "tolerance"), [(False, 1e-5), (True, 1e-9)], ids=["float32", "float64"]
)
def test_streamed_outputs_are_those_of_the_whole(task, convolution, double, tolerance):
    network, x = built(replace(SMALL, convolution=convolution), task), batch(task)
    network, x = (
        (network.double(), x.double() if x.is_floating_point() else x) if double else (network, x)
    )
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
    network = built()
    trace = network.record(batch(TOKENS), ["*"])
    sizes = {"batch": 5, "time": 9, "width": 6, "channels": 12, "state": 3, "outputs": 4}
    for point in network.points():
        assert trace[point.name].shape == tuple(sizes[axis] for axis in point.shape.split())
    assert (trace["layers.1.step_size"] > 0).all()


def test_recorded_states_follow_from_what_is_recorded_with_them():
    network = built()
    trace = network.record(batch(TOKENS), ["layers.1.*"])
    block = network.layers[1]
    with torch.no_grad():
        normed = block.mixer_norm(trace["layers.1.residual_in"])
        x = torch.nn.functional.silu(block.mixer.convolution(block.mixer.inner(normed)))
        rates = -block.mixer.log_rates.exp()
    step_size, gate, state = (
        trace[f"layers.1.{name}"] for name in ("step_size", "input_gate", "state")
    )
    for t in range(9):
        before = state[:, t - 1] if t else torch.zeros_like(state[:, 0])
        decay = torch.exp(step_size[:, t, :, None] * rates.T)
        drive = (step_size * x)[:, t, :, None] * gate[:, t, None]
        torch.testing.assert_close(state[:, t], decay * before + drive, atol=1e-5, rtol=1e-5)


def test_chosen_columns_are_the_same_numbers():
    network, x = built(), batch(TOKENS)
    torch.testing.assert_close(network(x, columns=[7, 3]), network(x)[:, [7, 3]])


def test_gradients_reach_every_parameter_and_are_those_of_the_open_path():
    """With the states asked for, torch differentiates the plain loop instead of the scan."""
    network, x = built().double(), batch(TOKENS)
    network(x).square().sum().backward()
    slopes = {name: p.grad.clone() for name, p in network.named_parameters()}
    network.zero_grad()
    network(x, tap=Recorder(["layers.0.state", "layers.1.state"])).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert slopes[name].abs().max() > 0
        torch.testing.assert_close(slopes[name], parameter.grad, atol=1e-9, rtol=1e-6)


def test_a_few_steps_teach_it_to_name_the_token_before():
    spec = Mamba(width=16, depth=1, state_size=4)
    task = Shape(TokenInputs(4), CategoricalOutputs((0, 1, 2, 3)))
    network = spec.build(task, STREAM)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    losses = []
    for seed in range(60):
        x = torch.randint(4, (16, 9), generator=torch.Generator().manual_seed(seed))
        loss = torch.nn.functional.cross_entropy(
            network(x)[:, 1:].flatten(0, 1), x[:, :-1].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(np.log(4), abs=0.8)
    assert losses[-1] < 0.2
