"""Mamba-2 and its core against loops written from the definition."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.windtunnel.models.mamba2 import Mamba2

torch = pytest.importorskip("torch")

from tests.windtunnel.networks import mixers  # noqa: E402

from beliefspace.windtunnel.networks.base import Initializer  # noqa: E402
from beliefspace.windtunnel.networks.convolution import CausalConvolution  # noqa: E402
from beliefspace.windtunnel.networks.mamba2 import Mamba2Mixer  # noqa: E402
from beliefspace.windtunnel.networks.ssd import Decay, mix, read, states  # noqa: E402

SMALL = Mamba2(width=8, depth=2, state_size=3, heads=4)
GRID = (
    SMALL,
    replace(SMALL, chunk=4, feed_forward=12, expand=3, heads=2),
    replace(SMALL, convolution=1, heads=None, chunk=5),
    replace(SMALL, convolution=20, depth=1, logit_scale=3.0),
)
INJECTED = replace(SMALL, side="inject")


def draws(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def looped(values, keys, queries, log_decay):
    """S_t = a_t S_{t-1} + k_t v_tᵀ, y_t = S_tᵀ q_t, one sequence, head and position at a time."""
    n, h, length, _ = values.shape
    rows = []
    for row in range(n):
        for head in range(h):
            k = keys[row, head if keys.shape[1] > 1 else 0]
            q = queries[row, head if keys.shape[1] > 1 else 0]
            state = torch.zeros(k.shape[1], values.shape[3], dtype=values.dtype)
            for t in range(length):
                state = log_decay[row, head, t].exp() * state + torch.outer(
                    k[t], values[row, head, t]
                )
                rows.append(state.T @ q[t])
    return torch.stack(rows).view(values.shape)


# ---------------------------------------------------------------- core


@pytest.mark.parametrize("chunk", [1, 3, 4, 6, 12, 64])
@pytest.mark.parametrize("shared", [True, False])
def test_the_core_equals_the_loop_and_so_do_its_gradients(chunk, shared):
    keyed = (2, 1 if shared else 3, 12, 4)
    given = [draws(2, 3, 12, 5), draws(*keyed, seed=1), draws(*keyed, seed=2)]
    given.append(-draws(2, 3, 12, seed=3).exp())
    weights = draws(2, 3, 12, 5, seed=4)
    results = []
    for core in (looped, lambda v, k, q, log: mix(v, k, q, Decay.of(log, chunk))):
        leaves = [x.clone().requires_grad_() for x in given]
        y = core(*leaves)
        results.append((y.detach(), torch.autograd.grad((y * weights).sum(), leaves)))
    (y, slopes), (own, own_slopes) = results
    torch.testing.assert_close(own, y, rtol=0, atol=1e-9)
    for slope, own_slope in zip(slopes, own_slopes, strict=True):
        torch.testing.assert_close(own_slope, slope, rtol=1e-6, atol=1e-9)


def test_the_states_are_those_of_the_loop():
    v, k, log = draws(2, 3, 7, 5), draws(2, 1, 7, 4, seed=1), -draws(2, 3, 7, seed=3).exp()
    # The state read along an axis is what the loop gives for a query along that axis.
    for axis in range(4):
        q = torch.zeros(2, 1, 7, 4, dtype=torch.float64)
        q[..., axis] = 1
        torch.testing.assert_close(states(v, k, log)[..., axis, :], looped(v, k, q, log))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("length", [1, 7])
def test_gradients_through_the_states_are_those_of_the_core(shared, length):
    keyed = (2, 1 if shared else 3, length, 4)
    given = [draws(2, 3, length, 5), draws(*keyed, seed=1), draws(*keyed, seed=2)]
    given.append(-draws(2, 1 if shared else 3, length, seed=3).exp())
    weights = draws(2, 3, length, 5, seed=4)
    slopes = []
    for core in (
        lambda v, k, q, log: mix(v, k, q, Decay.of(log, 4)),
        lambda v, k, q, log: read(states(v, k, log), q),
    ):
        leaves = [x.clone().requires_grad_() for x in given]
        slopes.append(torch.autograd.grad((core(*leaves) * weights).sum(), leaves))
    for slope, own_slope in zip(*slopes, strict=True):
        torch.testing.assert_close(own_slope, slope, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("chunk", [8, 64])
def test_extreme_decays_leave_outputs_and_gradients_finite(chunk):
    log = torch.tensor([0.0, -1e4, -1e-3, -80.0, 0.0, -1e30, -2e-3, -1e-3] * 2).view(1, 1, 16)
    log.requires_grad_()
    v, k = torch.ones(1, 1, 16, 1), torch.ones(1, 1, 16, 1)
    y = mix(v, k, k, Decay.of(log, chunk))
    y.sum().backward()
    assert torch.isfinite(y).all()
    assert torch.isfinite(log.grad).all()


def test_weak_decays_after_a_strong_one_keep_their_digits():
    log = torch.full((1, 1, 12), -1e-3)
    log[..., 3] = -1e5
    ones = torch.ones(1, 1, 12, 1)
    y = mix(ones, ones, ones, Decay.of(log, 64))[0, 0, :, 0].double()
    exact = [sum(math.exp(-1e-3 * back) for back in range(t - 2)) for t in range(3, 12)]
    torch.testing.assert_close(y[3:], torch.tensor(exact).double(), rtol=1e-6, atol=0)


# ---------------------------------------------------------------- convolution


@pytest.mark.parametrize(("taps", "length"), [(1, 5), (4, 9), (4, 2), (4, 1)])
def test_the_convolution_equals_torch_and_so_do_its_gradients(taps, length):
    convolution = CausalConvolution(6, taps, Initializer(mixers.STREAM)).double()
    mixers.stirred(convolution)
    x = draws(3, length, 6).requires_grad_()
    leaves = [x, convolution.kernel, convolution.bias]
    weights = draws(3, length, 6, seed=1)
    own = convolution(x)
    padded = torch.nn.functional.pad(x.mT, (taps - 1, 0))
    theirs = torch.nn.functional.conv1d(
        padded, convolution.kernel.flip(0).T[:, None], convolution.bias, groups=6
    ).mT
    torch.testing.assert_close(own, theirs, rtol=0, atol=1e-12)
    for slope, expected in zip(
        torch.autograd.grad((own * weights).sum(), leaves),
        torch.autograd.grad((theirs * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(slope, expected, rtol=0, atol=1e-12)


# ---------------------------------------------------------------- mixer


def by_hand(mixer, x):
    """The mixer from its formulas, position by position, without anything of the package."""
    spec = mixer.spec
    n, length, _ = x.shape
    inner, size, heads = spec.inner_width, spec.state_size, spec.head_count
    raw = torch.cat(
        [x @ part.weight.T for part in (mixer.values, mixer.input_gate, mixer.output_gate)], dim=-1
    )
    kernel, bias = mixer.convolution.kernel, mixer.convolution.bias
    rates = torch.exp(mixer.log_rate)
    state = torch.zeros(n, heads, inner // heads, size, dtype=x.dtype)
    outputs = []
    for t in range(length):
        sums = bias + sum(
            kernel[back] * raw[:, t - back] for back in range(min(len(kernel), t + 1))
        )
        mixed = sums * torch.sigmoid(sums)
        v = mixed[:, :inner].reshape(n, heads, -1)
        b, c = mixed[:, inner : inner + size], mixed[:, inner + size :]
        delta = torch.log1p(torch.exp(x[:, t] @ mixer.step_size.weight.T + mixer.step_bias))
        decay = torch.exp(-rates * delta)
        entering = torch.einsum("nh,nhp,ns->nhps", delta, v, b)
        state = decay[:, :, None, None] * state + entering
        y = torch.einsum("nhps,ns->nhp", state, c) + mixer.skip[:, None] * v
        z = x[:, t] @ mixer.gate.weight.T
        gated = y.reshape(n, inner) * z * torch.sigmoid(z)
        scale = (gated.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        outputs.append(gated * scale * mixer.gain @ mixer.output.weight.T)
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("spec", GRID)
def test_the_mixer_equals_its_formulas_and_so_do_its_gradients(spec):
    mixer = Mamba2Mixer(spec, Initializer(mixers.STREAM), 0.5)
    mixers.stirred(mixer)
    mixers.check_formulas(mixer, by_hand, draws(2, 9, spec.width))


def test_rates_and_step_sizes_start_spread_over_their_ranges():
    mixer = Mamba2Mixer(replace(SMALL, width=32, heads=8), Initializer(mixers.STREAM), 1.0)
    rates = mixer.log_rate.exp()
    steps = torch.nn.functional.softplus(mixer.step_bias)
    assert 1 < rates.min() < 2
    assert 15 < rates.max() < 16
    assert 1e-3 < steps.min() < 2e-3
    assert 5e-2 < steps.max() < 1e-1
    logs = steps.log()
    torch.testing.assert_close(logs.diff(), logs.diff().mean().expand(7), rtol=1e-4, atol=0)


# ---------------------------------------------------------------- network


@pytest.mark.parametrize("spec", [*GRID, INJECTED])
def test_every_setting_counts_streams_and_opens(spec):
    mixers.check_setting(spec)


def test_chunks_change_nothing():
    mixers.check_chunks(replace(SMALL, chunk=4), SMALL)


def test_it_learns():
    mixers.check_learns(replace(SMALL, width=16))


def test_sizes_resolve_as_published():
    assert (Mamba2(width=256).head_count, Mamba2(width=256).head_width) == (8, 64)
    assert (Mamba2(width=64).head_count, Mamba2(width=64).head_width) == (4, 32)
    assert Mamba2(width=7).head_count == 2
    assert Mamba2().hidden_width == 0


def test_operations_grow_linearly_beyond_a_chunk():
    mixers.check_operations_beyond_a_chunk(Mamba2(width=64))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"state_size": 0}, "state_size is a whole number of at least 1; got 0"),
        ({"expand": 1.5}, "expand is a whole number"),
        ({"convolution": 0}, "convolution is a whole number of at least 1"),
        ({"chunk": -1}, "chunk is a whole number"),
        ({"heads": 0}, "heads is a whole number of at least 1"),
        ({"heads": 5}, r"multiple of heads; got expand 2 x width 64 = 128, heads 5"),
        ({"width": 0}, "width is a whole number"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        Mamba2(**settings)
