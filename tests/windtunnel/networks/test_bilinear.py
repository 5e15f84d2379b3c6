"""The bilinear recurrence against its equations, and what its specification says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import resolve
from beliefspace.windtunnel.models.bilinear import Bilinear

torch = pytest.importorskip("torch")

from tests.windtunnel.networks.mixers import (  # noqa: E402
    STREAM,
    TOKENS,
    batch,
    built,
    check_formulas,
    check_learns,
    check_setting,
)

from beliefspace.core.taps import NO_TAP  # noqa: E402

SMALL = Bilinear(width=8, depth=2, feed_forward=12, products=6)
VARIANTS = {
    "plain": SMALL,
    "not opened": replace(SMALL, feed_forward_before=False),
    "no feed-forward": replace(SMALL, feed_forward=0),
    "injected": replace(SMALL, depth=1, side="inject"),
}


def by_the_equations(mixer, x):
    """States, one sequence and position at a time."""
    p, rows = dict(mixer.named_parameters()), []
    for sequence in x:
        state = torch.zeros(x.shape[2], dtype=x.dtype)
        for value in sequence:
            left, right = (
                p[f"{side}.weight"] @ value
                + p[f"{side}_recurrent.weight"] @ state
                + p[f"{side}.bias"]
                for side in ("left", "right")
            )
            raw = p["kept"] * state + p["output.weight"] @ (left * right)
            state = raw / torch.sqrt(raw.square().mean() + 1e-5)
            rows.append(state)
    return torch.stack(rows).view(x.shape)


def test_the_layer_is_its_equations_gradients_included():
    mixer = built(SMALL).blocks[1].mixer
    x = torch.randn(3, 7, 8, generator=torch.Generator().manual_seed(2))
    check_formulas(mixer, by_the_equations, x)


def test_the_forward_filter_of_a_hidden_markov_model_has_this_form():
    """Set by hand, the state points where the filter's unnormalised belief does."""
    generator = torch.Generator().manual_seed(4)
    transition, emission = torch.rand(2, 5, 5, generator=generator, dtype=torch.float64)
    symbols = torch.randint(5, (9,), generator=generator)
    mixer = Bilinear(width=6, products=5, feed_forward=0).build(TOKENS, STREAM).blocks[0].mixer
    mixer.double()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.zero_()
        mixer.left.weight[:, :5] = emission  # e(o), from a one-hot symbol
        mixer.right_recurrent.weight[:, :5] = transition.T  # the belief, one transition on
        mixer.right.weight[:, 5] = 1.0  # the uniform start, from a mark in the first input
        mixer.output.weight[:5] = torch.eye(5)
        x = torch.zeros(1, 9, 6, dtype=torch.float64)
        x[0, torch.arange(9), symbols] = 1
        x[0, 0, 5] = 1
        states = mixer(x, NO_TAP)[0, :, :5]
    belief = torch.ones(5, dtype=torch.float64)
    for at, symbol in enumerate(symbols):
        belief = emission[:, symbol] * (belief if at == 0 else belief @ transition)
        belief = belief / belief.sum()
        torch.testing.assert_close(states[at] / states[at].sum(), belief, rtol=0, atol=1e-9)


def test_states_have_root_mean_square_1():
    _, trace = built(SMALL).run(batch(TOKENS), ["layers.*.state"])
    for state in trace.values.values():
        size = state.square().mean(dim=2).sqrt()
        torch.testing.assert_close(size, torch.ones_like(size), rtol=1e-2, atol=0)


@pytest.mark.parametrize("spec", VARIANTS.values(), ids=VARIANTS)
def test_every_variant_counts_streams_and_opens(spec):
    check_setting(spec)


def test_operations_are_those_of_the_maps():
    layers, feed_forwards, ends = 2 * 5 * 8 * 6, 3 * 3 * 8 * 12, 8 * 4
    assert SMALL.operations(TOKENS) == 6.0 * TOKENS.length * (layers + feed_forwards + ends)


def test_it_learns_to_remember():
    check_learns(replace(SMALL, depth=1))


def test_it_is_registered():
    assert resolve("models", "bilinear") is Bilinear


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"products": 0}, "products is a whole number of at least 1; got 0"),
        ({"products": 2.0}, "products is a whole number"),
        ({"side": "injct"}, "nearest: inject"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        Bilinear(**settings)
