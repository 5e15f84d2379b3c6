"""Mamba-1 against loops written out, and its scan with a backward pass of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import resolve
from beliefspace.windtunnel.models.mamba import Mamba

torch = pytest.importorskip("torch")

from tests.windtunnel.networks.mixers import (  # noqa: E402
    STREAM,
    TOKENS,
    batch,
    built,
    check_constants,
    check_learns,
    check_open_gradients,
    check_setting,
)

from beliefspace.core.taps import NO_TAP  # noqa: E402
from beliefspace.windtunnel.networks import selective_scan as scan  # noqa: E402

SMALL = Mamba(width=6, depth=2, state_size=3)


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


def test_the_layout_of_the_rates_changes_nothing():
    x, step_size, rates, input_gate, output_gate = operands(3, 11, 4, 5)
    turned = rates.detach().mT.contiguous().requires_grad_()
    y = scan.selective_scan(x, step_size, rates, input_gate, output_gate)
    again = scan.selective_scan(x, step_size, turned.mT, input_gate, output_gate)
    assert torch.equal(again, y)
    (slope,) = torch.autograd.grad(y.sum(), rates)
    (turned_slope,) = torch.autograd.grad(again.sum(), turned)
    assert torch.equal(turned_slope, slope.mT)


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


def test_it_is_registered():
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


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"width": 17},
        {"feed_forward": 0, "expand": 1},
        {"convolution": 1, "state_size": 1},
        {"side": "inject"},
    ],
)
def test_every_setting_counts_streams_and_opens(settings):
    spec = replace(SMALL, **settings)
    check_setting(spec)


def test_all_but_norms_biases_rates_and_skips_are_drawn():
    check_constants(SMALL, ("norm.weight", "bias", "log_rates", "skip"))


# ---------------------------------------------------------------- the network


def test_recorded_states_follow_from_what_is_recorded_with_them():
    network = built(SMALL)
    trace = network.record(batch(TOKENS), ["layers.1.*"])
    block = network.layers[1]
    with torch.no_grad():
        normed = block.mixer_norm(trace["layers.1.residual_in"])
        x = torch.nn.functional.silu(block.mixer.convolution(block.mixer.inner(normed)))
        rates = -block.mixer.log_rates.exp()
    step_size, gate, state = (
        trace[f"layers.1.{name}"] for name in ("step_size", "input_gate", "state")
    )
    for t in range(TOKENS.length):
        before = state[:, t - 1] if t else torch.zeros_like(state[:, 0])
        decay = torch.exp(step_size[:, t, :, None] * rates.T)
        drive = (step_size * x)[:, t, :, None] * gate[:, t, None]
        torch.testing.assert_close(state[:, t], decay * before + drive, atol=1e-5, rtol=1e-5)


def test_step_sizes_are_positive():
    trace = built(SMALL).record(batch(TOKENS), ["layers.*.step_size"])
    assert all((steps > 0).all() for steps in trace.values.values())


def test_gradients_are_those_of_the_open_path():
    check_open_gradients(SMALL)


def test_it_learns_to_remember():
    check_learns(Mamba(width=16, depth=1, state_size=4))
