"""The gated delta rule against its recurrence written from the definition."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.windtunnel.models.gated_delta import GatedDelta

torch = pytest.importorskip("torch")

from tests.windtunnel.networks import mixers  # noqa: E402

from beliefspace.windtunnel.networks.base import Initializer  # noqa: E402
from beliefspace.windtunnel.networks.gated_delta import (  # noqa: E402
    GatedDeltaMixer,
    corrections,
)
from beliefspace.windtunnel.networks.ssd import Decay, mix  # noqa: E402

SMALL = GatedDelta(width=8, depth=2, heads=2)
GRID = (
    SMALL,
    replace(SMALL, chunk=4, feed_forward=0, convolution=2),
    replace(SMALL, heads=None, depth=1, chunk=5, convolution=20),
)


def draws(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def looped(values, keys, queries, log_decay, rate):
    """S_t = α_t S_{t-1} (I - β_t k_t k_tᵀ) + β_t v_t k_tᵀ, o_t = S_t q_t, as published."""
    n, h, length, width = values.shape
    identity = torch.eye(width, dtype=values.dtype)
    rows = []
    for row in range(n):
        for head in range(h):
            state = torch.zeros(width, width, dtype=values.dtype)
            for t in range(length):
                k, b = keys[row, head, t], rate[row, head, t]
                kept = state @ (identity - b * torch.outer(k, k))
                written = b * torch.outer(values[row, head, t], k)
                state = log_decay[row, head, t].exp() * kept + written
                rows.append(state @ queries[row, head, t])
    return torch.stack(rows).view(values.shape)


@pytest.mark.parametrize("chunk", [1, 3, 5, 6, 12, 64])
def test_the_core_equals_the_loop_and_so_do_its_gradients(chunk):
    given = [draws(2, 3, 12, 4, seed=seed) for seed in range(3)]
    given[1] = torch.nn.functional.normalize(given[1], dim=-1)
    given += [-draws(2, 3, 12, seed=3).exp(), draws(2, 3, 12, seed=4).sigmoid()]
    weights = draws(2, 3, 12, 4, seed=5)

    def chunked(values, keys, queries, log_decay, rate):
        decay = Decay.of(log_decay, chunk)
        return mix(corrections(values, keys, rate, decay), keys, queries, decay)

    results = []
    for core in (looped, chunked):
        leaves = [x.clone().requires_grad_() for x in given]
        y = core(*leaves)
        results.append((y.detach(), torch.autograd.grad((y * weights).sum(), leaves)))
    (y, slopes), (own, own_slopes) = results
    torch.testing.assert_close(own, y, rtol=0, atol=1e-9)
    for slope, own_slope in zip(slopes, own_slopes, strict=True):
        torch.testing.assert_close(own_slope, slope, rtol=1e-6, atol=1e-9)


def test_without_decay_a_full_rate_overwrites_what_a_key_held():
    keys = torch.eye(3)[[0, 1, 0, 2, 0]].view(1, 1, 5, 3)
    values = torch.arange(1.0, 6.0).view(1, 1, 5, 1).expand(1, 1, 5, 3)
    decay = Decay.of(torch.zeros(1, 1, 5), 2)
    u = corrections(values, keys, torch.ones(1, 1, 5), decay)
    asked = torch.eye(3)[[0, 0, 0, 1, 0]].view(1, 1, 5, 3)
    held = mix(u, keys, asked, decay)[0, 0, :, 0]
    torch.testing.assert_close(held, torch.tensor([1.0, 1.0, 3.0, 2.0, 5.0]))


@pytest.mark.parametrize("chunk", [4, 64])
def test_strong_decay_and_repeated_keys_leave_all_finite(chunk):
    log = torch.tensor([0.0, -1e4, -1e-3, -80.0, 0.0, -1e30, -1e-3, 0.0]).view(1, 1, 8)
    log.requires_grad_()
    keys = torch.eye(2)[[0] * 8].view(1, 1, 8, 2).requires_grad_()
    decay = Decay.of(log, chunk)
    y = mix(corrections(keys, keys, torch.ones(1, 1, 8), decay), keys, keys, decay)
    y.square().sum().backward()
    for value in (y, log.grad, keys.grad):
        assert torch.isfinite(value).all()


def by_hand(mixer, x):
    """The mixer from its formulas, without anything of the package."""
    spec = mixer.spec
    n, length, _ = x.shape
    raw = torch.cat(
        [x @ part.weight.T for part in (mixer.queries, mixer.keys, mixer.values)], dim=-1
    )
    kernel = mixer.convolution.kernel
    sums = torch.stack(
        [
            mixer.convolution.bias
            + sum(kernel[back] * raw[:, t - back] for back in range(min(len(kernel), t + 1)))
            for t in range(length)
        ],
        dim=1,
    )
    mixed = (sums * torch.sigmoid(sums)).reshape(n, length, 3, spec.head_count, spec.head_width)
    q, k, v = mixed.permute(2, 0, 3, 1, 4)
    q, k = (u / (u.square().sum(-1, keepdim=True) + 1e-6).sqrt() for u in (q, k))
    delta = torch.log1p(torch.exp(x @ mixer.step_size.weight.T + mixer.step_bias)).mT
    log_decay = -torch.exp(mixer.log_rate)[:, None] * delta
    y = looped(v, k, q, log_decay, torch.sigmoid(x @ mixer.input_gate.weight.T).mT)
    y = y / math.sqrt(spec.head_width)
    y = y * (y.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * mixer.gain
    z = x @ mixer.gate.weight.T
    return (y.mT.permute(0, 3, 1, 2).reshape(x.shape) * z * torch.sigmoid(z)) @ (
        mixer.output.weight.T
    )


@pytest.mark.parametrize("spec", GRID)
def test_the_mixer_equals_its_formulas_and_so_do_its_gradients(spec):
    mixer = GatedDeltaMixer(spec, Initializer(mixers.STREAM), 0.5)
    mixers.stirred(mixer)
    mixers.check_formulas(mixer, by_hand, draws(2, 9, spec.width))


@pytest.mark.parametrize("spec", [*GRID, replace(SMALL, side="inject")])
def test_every_setting_counts_streams_and_opens(spec):
    mixers.check_setting(spec)


def test_chunks_change_nothing():
    mixers.check_chunks(replace(SMALL, chunk=4), SMALL)


def test_it_learns():
    mixers.check_learns(replace(SMALL, width=16))


def test_operations_grow_linearly_beyond_a_chunk():
    mixers.check_operations_beyond_a_chunk(GatedDelta(width=64))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"heads": 3}, "multiple of heads; got width 64, heads 3"),
        ({"heads": True}, "heads is a whole number"),
        ({"convolution": 0}, "convolution is a whole number of at least 1; got 0"),
        ({"chunk": 0}, "chunk is a whole number"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        GatedDelta(**settings)
