"""The state space model of the public code of 2512.22471 against its formulas and its counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import resolve
from beliefspace.windtunnel.models.mamba import Mamba
from beliefspace.windtunnel.models.released_mamba import ReleasedMamba
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, TokenInputs

torch = pytest.importorskip("torch")

from tests.windtunnel.networks.mixers import (  # noqa: E402
    STREAM,
    TOKENS,
    Shape,
    batch,
    built,
    check_constants,
    check_formulas,
    check_learns,
    check_open_gradients,
    check_setting,
)

SMALL = ReleasedMamba(width=6, depth=2, state_size=3)
# Clamps that are met: in most steps one of the three.
TIGHT = replace(SMALL, step_range=(0.5, 0.8), decay_range=(0.3, 0.6), state_limit=0.2)


def mixer_by_hand(mixer, u, spec, met):
    """The formulas of the mixer, position by position, on tensors; counts the clamps met."""
    p = dict(mixer.named_parameters())
    inner, gate = u @ p["inner.weight"].T, u @ p["gate.weight"].T
    h = u.new_zeros(len(u), spec.state_size, spec.channels)
    outputs = []

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
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("spec", [SMALL, TIGHT], ids=["wide", "tight"])
def test_the_mixer_is_its_formulas_with_the_same_gradients(spec):
    met = np.zeros(3, dtype=int)
    mixer = built(spec, size=0.3).layers[0].mixer
    u = torch.linspace(-2, 2, 5 * 9 * 6, dtype=torch.float64).sin().view(5, 9, 6)
    check_formulas(mixer, lambda mixer, u: mixer_by_hand(mixer, u, spec, met), u)
    assert (met > 0).all() == (spec is TIGHT)


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


@pytest.mark.parametrize(
    "spec",
    [
        SMALL,
        TIGHT,
        replace(SMALL, width=17, expand=1),
        replace(SMALL, convolution=1),
        replace(SMALL, side="inject"),
    ],
)
def test_every_setting_counts_streams_and_opens(spec):
    check_setting(spec)


def test_all_but_norms_biases_rates_and_skips_are_drawn():
    check_constants(SMALL, ("norm.weight", "bias", "log_rates", "skip"))


# ---------------------------------------------------------------- the network


def test_states_and_step_sizes_are_shown_clamped():
    trace = built(TIGHT, size=0.3).record(batch(TOKENS), ["layers.0.*"])
    assert trace["layers.0.state"].abs().max() == np.float32(0.2)
    steps = trace["layers.0.step_size"]
    assert np.float32(0.5) <= steps.min() <= steps.max() <= np.float32(0.8)


def test_gradients_are_those_of_the_open_path():
    check_open_gradients(SMALL)


def test_it_learns_to_remember():
    check_learns(ReleasedMamba(width=16, depth=1, state_size=4))
