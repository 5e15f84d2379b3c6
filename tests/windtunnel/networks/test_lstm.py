"""The LSTM against its equations, torch's own stack, and what its specification says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import resolve
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.models.lstm import LSTM
from beliefspace.windtunnel.recipe import Recipe, Schedule
from beliefspace.windtunnel.tasks.bijection import Bijection
from beliefspace.windtunnel.tasks.hmm import HMM

torch = pytest.importorskip("torch")

from tests.windtunnel.networks.mixers import (  # noqa: E402
    REALS,
    STREAM,
    TOKENS,
    batch,
    built,
    check_formulas,
    check_inner_slopes,
    check_learns,
    check_setting,
)

from beliefspace.windtunnel.networks.recurrent import Dropout, scanned  # noqa: E402
from beliefspace.windtunnel.trainer import Trainer  # noqa: E402

SMALL = LSTM(width=8, depth=2, feed_forward=12)
STACKED = LSTM(width=8, depth=3, style="stacked", dropout=0.0)
INJECTED = replace(SMALL, depth=1, side="inject")
VARIANTS = {
    "residual": SMALL,
    "not opened": replace(SMALL, feed_forward_before=False),
    "no feed-forward": replace(SMALL, feed_forward=0),
    "stacked": STACKED,
    "injected": INJECTED,
}


def by_the_equations(mixer, x):
    """Hidden states, one sequence, position and gate at a time."""
    p, rows = dict(mixer.named_parameters()), []
    for sequence in x:
        hidden = cells = torch.zeros(x.shape[2], dtype=x.dtype)
        for value in sequence:

            def total(gate, value=value, hidden=hidden):
                inward = p[f"{gate}.weight"] @ value + p[f"{gate}.bias"]
                return inward + p[f"{gate}_recurrent.weight"] @ hidden

            i, f, o = (
                1 / (1 + torch.exp(-total(f"{gate}_gate")))
                for gate in ("input", "forget", "output")
            )
            cells = f * cells + i * torch.tanh(total("candidate"))
            hidden = o * torch.tanh(cells)
            rows.append(hidden)
    return torch.stack(rows).view(x.shape)


# ---------------------------------------------------------------- arithmetic


def test_the_layer_is_the_published_equations_gradients_included():
    mixer = built(SMALL).blocks[1].mixer
    x = torch.randn(3, 7, 8, generator=torch.Generator().manual_seed(2))
    check_formulas(mixer, by_the_equations, x)


def test_the_scan_is_the_recurrence_it_says():
    kept, added = torch.rand(2, 3, 6, 4, dtype=torch.float64, generator=torch.Generator())
    state = torch.zeros(3, 4, dtype=torch.float64)
    for at, value in enumerate(scanned(kept, added).unbind(1)):
        state = kept[:, at] * state + added[:, at]
        torch.testing.assert_close(value, state, rtol=0, atol=1e-12)


def test_the_stacked_style_is_torchs_own_stack_of_layers():
    network, x = built(STACKED, REALS).double(), batch(REALS)
    whole = torch.nn.LSTM(8, 8, num_layers=3, batch_first=True).double()
    with torch.no_grad():
        for layer, block in enumerate(network.blocks):
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            for name, value in zip(names, block.mixer.weights(), strict=True):
                getattr(whole, f"{name}_l{layer}").copy_(value)
        expected = whole(network.ends.embed(x))[0]
        expected = network.ends.head(network.ends.final_norm(expected))
        torch.testing.assert_close(network(x), expected, rtol=0, atol=1e-9)


def test_every_lstm_of_the_residual_stack_stands_between_feed_forwards():
    network = built(SMALL, REALS).double()
    _, trace = network.run(batch(REALS), ["*"])
    first, second = network.blocks
    opened = first.opening(first.opening_norm(trace["embed"]))
    torch.testing.assert_close(trace["layers.0.residual_in"], trace["embed"] + opened)
    torch.testing.assert_close(trace["layers.1.residual_in"], trace["layers.0.residual_out"])
    for at, block in (("layers.0", first), ("layers.1", second)):
        middle = trace[f"{at}.residual_in"] + trace[f"{at}.mixer_out"]
        torch.testing.assert_close(trace[f"{at}.residual_mid"], middle)
        fed = block.feed_forward(block.feed_forward_norm(middle))
        torch.testing.assert_close(trace[f"{at}.residual_out"], middle + fed)
    assert not any("opening" in name for name, _ in built(VARIANTS["not opened"]).named_modules())


def test_cells_start_out_remembering():
    mixer = SMALL.build(TOKENS, STREAM).blocks[0].mixer
    assert torch.equal(mixer.forget_gate.bias, torch.ones(8))
    assert torch.equal(mixer.input_gate.bias, torch.zeros(8))


@pytest.mark.parametrize("spec", VARIANTS.values(), ids=VARIANTS)
def test_every_variant_counts_streams_and_opens(spec):
    check_setting(spec)


# ---------------------------------------------------------------- points


def test_slopes_by_the_inside_come_with_the_trace():
    names = [f"layers.0.{name}" for name in ("input_gate", "output_gate", "state")]
    check_inner_slopes(built(SMALL), names)


def test_opening_the_inside_gives_the_kernels_numbers_in_single_precision():
    network, x = built(SMALL), batch(TOKENS)
    plain, _ = network.run(x)
    for name in ("input_gate", "output_gate", "state"):
        opened, _ = network.run(x, [f"layers.*.{name}"])
        torch.testing.assert_close(opened, plain, rtol=1e-5, atol=1e-5)


def test_gates_and_cells_are_those_that_make_the_output():
    network, x = built(SMALL), batch(TOKENS)
    _, trace = network.run(x, ["layers.0.*"])
    read = trace["layers.0.output_gate"] * trace["layers.0.state"].tanh()
    torch.testing.assert_close(trace["layers.0.mixer_out"], read)


def test_an_edit_of_the_inside_acts_as_documented():
    network, x = built(SMALL), batch(TOKENS)
    _, plain = network.run(x, ["layers.0.*"])
    shut = network.edit({"layers.0.input_gate": torch.zeros_like})
    _, trace = shut.run(x, ["layers.0.*"])
    assert not trace["layers.0.state"].any()
    assert torch.equal(trace["layers.0.output_gate"], plain["layers.0.output_gate"])

    def wiped(cells):
        cells[:, 4] = 0
        return cells

    _, trace = network.edit({"layers.0.state": wiped}).run(x, ["layers.0.*"])
    changed = (trace["layers.0.mixer_out"] != plain["layers.0.mixer_out"]).any(dim=2).any(dim=0)
    assert changed.nonzero().flatten().tolist() == [4]
    assert not trace["layers.0.mixer_out"][:, 4].any()


# ---------------------------------------------------------------- dropout


def test_dropout_zeroes_its_share_and_keeps_the_mean():
    drop, x = Dropout(0.3, STREAM), torch.ones(40, 10, 25)
    once, twice = drop(x), drop(x)
    for y in (once, twice):
        assert abs(float((y == 0).double().mean()) - 0.3) < 0.02
        torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / 0.7))
    assert not torch.equal(once, twice)
    again = Dropout(0.3, STREAM)
    assert torch.equal(again(x[:7]), once[:7])
    assert torch.equal(again.eval()(x), x)
    assert int(again.passes) == 1


def test_dropout_is_between_layers_and_in_training_only():
    spec = replace(STACKED, dropout=0.5)
    network, without, x = built(spec), built(STACKED), batch(TOKENS)
    assert torch.equal(network.run(x)[0], without.run(x)[0])
    assert not torch.equal(network(x), without(x))
    passes = [name for name in network.state_dict() if name.endswith("passes")]
    assert passes == ["layers.0.dropout.passes", "layers.1.dropout.passes"]
    assert all(int(network.state_dict()[name]) == 1 for name in passes)


# ---------------------------------------------------------------- specification


def test_the_published_model_has_the_published_size():
    spec = LSTM.published()
    assert spec.parameters(Bijection(20)) == pytest.approx(1.79e6, rel=0.005)
    assert spec.dropout_rate == 0.1


def test_operations_are_those_of_the_maps():
    layers, length = 2 * 8 * 8**2, TOKENS.length
    feed_forwards, ends = 3 * 3 * 8 * 12, 8 * 4
    assert SMALL.operations(TOKENS) == 6.0 * length * (layers + feed_forwards + ends)
    assert STACKED.operations(TOKENS) == 6.0 * length * (3 * 8 * 8**2 + ends)


def test_it_is_registered():
    assert resolve("models", "lstm") is LSTM


def test_it_learns_to_remember():
    check_learns(replace(SMALL, depth=1))


def test_it_trains_on_vectors_and_a_header():
    task = HMM(states=3, symbols=3, observations=6, header="rows")
    schedule = Schedule("30 steps", batch=16)
    trainer = Trainer(Recipe(task, INJECTED, schedule=schedule, targets="posterior"))
    losses = [trainer.advance(step, 30)[0] for step in range(30)]
    assert sum(losses[-5:]) < sum(losses[:5])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"style": "stack"}, "style is one of residual, stacked; got 'stack'"),
        ({"dropout": 0.1}, 'dropout acts between layers of style = "stacked"; got 0.1'),
        ({"dropout": 1.0, "style": "stacked"}, "dropout is a share below 1; got 1.0"),
        ({"dropout": -0.1, "style": "stacked"}, "dropout is a finite number at least 0"),
        ({"feed_forward": 8, "style": "stacked"}, "no feed-forward; got a hidden width of 8"),
        ({"width": 0}, "width is a whole number of at least 1; got 0"),
        ({"depth": True}, "depth is a whole number"),
    ],
)
def test_choices_that_do_not_go_together_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        LSTM(**settings)


def test_a_header_that_is_not_there_cannot_be_injected():
    with pytest.raises(InvalidInput, match='side = "inject" needs a task with a header'):
        INJECTED.build(TOKENS, Stream(0, "initial"))
