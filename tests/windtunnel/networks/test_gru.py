"""The GRU against its equations, torch's own stack, and what its specification says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import resolve
from beliefspace.windtunnel.models.gru import GRU

torch = pytest.importorskip("torch")

from tests.windtunnel.networks.mixers import (  # noqa: E402
    REALS,
    TOKENS,
    batch,
    built,
    check_formulas,
    check_inner_slopes,
    check_learns,
    check_setting,
)

SMALL = GRU(width=8, depth=2, feed_forward=12)
STACKED = GRU(width=8, depth=3, style="stacked", dropout=0.0)
VARIANTS = {
    "residual": SMALL,
    "not opened": replace(SMALL, feed_forward_before=False),
    "stacked": STACKED,
    "injected": replace(SMALL, depth=1, side="inject"),
}


def by_the_equations(mixer, x):
    """Hidden states, one sequence, position and gate at a time."""
    p, rows = dict(mixer.named_parameters()), []
    for sequence in x:
        hidden = torch.zeros(x.shape[2], dtype=x.dtype)
        for value in sequence:
            inward = {gate: p[f"{gate}.weight"] @ value + p[f"{gate}.bias"] for gate in GATES}
            inner = {gate: p[f"{gate}_recurrent.weight"] @ hidden for gate in GATES}
            reset = 1 / (1 + torch.exp(-inward["reset_gate"] - inner["reset_gate"]))
            update = 1 / (1 + torch.exp(-inward["update_gate"] - inner["update_gate"]))
            inner_candidate = inner["candidate"] + p["candidate_recurrent.bias"]
            candidate = torch.tanh(inward["candidate"] + reset * inner_candidate)
            hidden = update * hidden + (1 - update) * candidate
            rows.append(hidden)
    return torch.stack(rows).view(x.shape)


GATES = ("reset_gate", "update_gate", "candidate")


# ---------------------------------------------------------------- arithmetic


def test_the_layer_is_the_published_equations_gradients_included():
    mixer = built(SMALL).blocks[1].mixer
    x = torch.randn(3, 7, 8, generator=torch.Generator().manual_seed(2))
    check_formulas(mixer, by_the_equations, x)


def test_the_stacked_style_is_torchs_own_stack_of_layers():
    network, x = built(STACKED, REALS).double(), batch(REALS)
    whole = torch.nn.GRU(8, 8, num_layers=3, batch_first=True).double()
    with torch.no_grad():
        for layer, block in enumerate(network.blocks):
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            for name, value in zip(names, block.mixer.weights(), strict=True):
                getattr(whole, f"{name}_l{layer}").copy_(value)
        expected = whole(network.ends.embed(x))[0]
        expected = network.ends.head(network.ends.final_norm(expected))
        torch.testing.assert_close(network(x), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("spec", VARIANTS.values(), ids=VARIANTS)
def test_every_variant_counts_streams_and_opens(spec):
    check_setting(spec)


# ---------------------------------------------------------------- points


def test_slopes_by_the_inside_come_with_the_trace():
    check_inner_slopes(built(SMALL), [f"layers.0.{name}" for name in ("input_gate", "state")])


def test_opening_the_inside_gives_the_kernels_numbers_in_single_precision():
    network, x = built(SMALL), batch(TOKENS)
    plain, _ = network.run(x)
    for name in ("input_gate", "state"):
        opened, _ = network.run(x, [f"layers.*.{name}"])
        torch.testing.assert_close(opened, plain, rtol=1e-5, atol=1e-5)


def test_an_edit_of_the_inside_acts_as_documented():
    network, x = built(SMALL), batch(TOKENS)
    _, plain = network.run(x, ["layers.0.*"])
    shut = network.edit({"layers.0.input_gate": torch.zeros_like})
    assert not shut.run(x, ["layers.0.state"])[1]["layers.0.state"].any()

    def closed_at_4(gate):
        gate[:, 4] = 0
        return gate

    kept = network.edit({"layers.0.input_gate": closed_at_4}).run(x, ["layers.0.state"])[1]
    states = kept["layers.0.state"]
    torch.testing.assert_close(states[:, 4], plain["layers.0.state"][:, 3])
    assert (states[:, 5] - plain["layers.0.state"][:, 5]).abs().max() > 1e-3


# ---------------------------------------------------------------- specification


def test_operations_are_those_of_the_maps():
    layers, feed_forwards, ends = 2 * 6 * 8**2, 3 * 3 * 8 * 12, 8 * 4
    assert SMALL.operations(TOKENS) == 6.0 * TOKENS.length * (layers + feed_forwards + ends)


def test_it_learns_to_remember():
    check_learns(replace(SMALL, depth=1))


def test_it_is_registered():
    assert resolve("models", "gru") is GRU


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"style": "plain"}, "style is one of residual, stacked; got 'plain'"),
        ({"dropout": 0.2}, 'dropout acts between layers of style = "stacked"; got 0.2'),
        ({"feed_forward": 8, "style": "stacked"}, "no feed-forward; got a hidden width of 8"),
        ({"logit_scale": 0}, "logit_scale is a finite number greater than 0"),
    ],
)
def test_choices_that_do_not_go_together_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        GRU(**settings)
