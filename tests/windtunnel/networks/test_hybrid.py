"""Attention as a mixer against sums written from the definition, and in turn with Mamba-2."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.windtunnel.models.hybrid import Hybrid
from beliefspace.windtunnel.models.mamba2 import Mamba2

torch = pytest.importorskip("torch")

from tests.windtunnel.networks import mixers  # noqa: E402

from beliefspace.windtunnel.networks import hybrid  # noqa: E402
from beliefspace.windtunnel.networks.base import Initializer  # noqa: E402
from beliefspace.windtunnel.networks.hybrid import AttentionMixer  # noqa: E402
from beliefspace.windtunnel.networks.mamba2 import Mamba2Mixer  # noqa: E402

SMALL = Hybrid(width=8, attention_heads=2)
ATTENTION = replace(SMALL, pattern=("attention",))
GRID = (
    SMALL,
    ATTENTION,
    replace(SMALL, depth=3, pattern=("attention", "mamba2"), feed_forward=0, chunk=4),
    replace(SMALL, attention_heads=None, heads=2, logit_scale=3.0),
)


def by_hand(mixer, x):
    """Averages of values weighted by exponentials of scaled products, query by query."""
    heads, width, rows = mixer.heads, mixer.head_width, []
    for sequence in x:
        q, k, v = (
            (sequence @ part.weight.T).reshape(-1, heads, width)
            for part in (mixer.queries, mixer.keys, mixer.values)
        )
        for t in range(len(sequence)):
            outputs = []
            for head in range(heads):
                products = [q[t, head] @ k[s, head] for s in range(t + 1)]
                weights = torch.exp(torch.stack(products) / math.sqrt(width))
                outputs.append(weights @ v[: t + 1, head] / weights.sum())
            rows.append(torch.cat(outputs) @ mixer.output.weight.T)
    return torch.stack(rows).view_as(x)


# ---------------------------------------------------------------- attention


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_the_mixer_equals_its_formulas_and_so_do_its_gradients(heads):
    spec = replace(SMALL, attention_heads=heads)
    mixer = AttentionMixer(spec, Initializer(mixers.STREAM), 0.5)
    x = torch.randn(2, 9, spec.width, generator=torch.Generator().manual_seed(0))
    mixers.check_formulas(mixer, by_hand, x)


def test_attention_rebuilds_from_its_recorded_parts():
    network, x = mixers.built(ATTENTION), mixers.batch(mixers.TOKENS)
    trace = network.record(x, ["layers.1.*"])
    q, k, v, scores, attention, mixed = (
        trace[f"layers.1.{name}"]
        for name in ("queries", "keys", "values", "scores", "attention", "head_outputs")
    )
    seen = torch.ones(11, 11).tril().bool()
    assert torch.isneginf(scores[..., ~seen]).all()
    products = torch.einsum("nhqd,nhkd->nhqk", q, k) / 2
    torch.testing.assert_close(scores[..., seen], products[..., seen])
    torch.testing.assert_close(attention.sum(dim=-1), torch.ones(4, 2, 11))
    torch.testing.assert_close(mixed, attention @ v)
    with torch.no_grad():
        added = network.layers[1].mixer.output(mixed.transpose(1, 2).flatten(2))
    torch.testing.assert_close(trace["layers.1.mixer_out"], added)


def test_by_itself_it_sees_the_past_as_a_bag_and_a_state_space_brings_order():
    x = mixers.batch(mixers.TOKENS)
    mixed = torch.cat([x[:, :10].flip(1), x[:, 10:]], dim=1)
    one = replace(ATTENTION, depth=1)
    for spec, same in ((one, True), (SMALL, False)):
        network = mixers.built(spec)
        with torch.no_grad():
            ends = network(mixed)[:, -1], network(x)[:, -1]
        assert torch.allclose(*ends, atol=1e-5) == same


def test_its_recurrent_form_keeps_every_key_and_value():
    mixer = AttentionMixer(SMALL, Initializer(mixers.STREAM), 1.0)
    x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    state = mixer.start(x[:, 0])
    for t in range(5):
        assert state["keys"].shape == state["values"].shape == (3, 2, t, 4)
        _, state = mixer.step(x[:, t], state)
    whole = mixer.keys(x).view(3, 5, 2, 4).transpose(1, 2)
    torch.testing.assert_close(state["keys"], whole)


def test_scores_are_made_only_where_they_are_asked_for(monkeypatch):
    opened, explicit = [], hybrid._open
    monkeypatch.setattr(
        hybrid, "_open", lambda *parts: opened.append(parts[0].shape) or explicit(*parts)
    )
    network, x = mixers.built(ATTENTION), mixers.batch(mixers.TOKENS)
    network.run(x)
    network.run(x, ["layers.*.keys", "layers.*.head_outputs"])
    assert opened == []
    network.run(x, ["layers.1.scores"])
    assert len(opened) == 1


# ---------------------------------------------------------------- the stack


@pytest.mark.parametrize("spec", GRID)
def test_layers_are_of_the_kinds_that_the_pattern_says(spec):
    network = spec.build(mixers.TOKENS, mixers.STREAM)
    kinds = {"mamba2": Mamba2Mixer, "attention": AttentionMixer}
    for layer, block in enumerate(network.layers):
        assert type(block.mixer) is kinds[spec.pattern[layer % len(spec.pattern)]]


def test_without_attention_it_is_mamba2_number_for_number():
    own = replace(SMALL, pattern=("mamba2",), feed_forward=0)
    plain = Mamba2(width=8)
    x = mixers.batch(mixers.TOKENS)
    outputs = [mixers.built(spec)(x) for spec in (own, plain)]
    assert torch.equal(*outputs)
    for count in ("parameters", "operations"):
        assert getattr(own, count)(mixers.TOKENS) == getattr(plain, count)(mixers.TOKENS)


@pytest.mark.parametrize("spec", [*GRID, replace(SMALL, side="inject")])
def test_every_setting_counts_streams_and_opens(spec):
    def sizes(layer):
        heads = spec.attention_head_count
        own = {"heads": heads, "head_width": spec.width // heads}
        return own if spec.kind(layer) == "attention" else {}

    mixers.check_setting(spec, sizes)


def test_operations_of_attention_are_four_maps_and_two_products_of_all_pairs():
    assert SMALL.mixer_operations(1, 5) == 2 * (5 * 4 * 8**2 + 2 * 5**2 * 8)


def test_it_learns_whether_a_token_has_been_seen():
    mixers.check_learns(replace(SMALL, width=16))


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pattern": ()}, "kinds of 1 to 2 layers .depth.; got 0 kinds"),
        ({"pattern": ("mamba2", "mamba2", "attention")}, "1 to 2 layers .depth.; got 3 kinds"),
        ({"pattern": ("mamba",)}, "a layer of the pattern is one of mamba2, attention"),
        ({"attention_heads": 0}, "attention_heads is a whole number of at least 1"),
        ({"attention_heads": 5}, "multiple of attention_heads; got width 64, attention_heads 5"),
        ({"heads": 5}, "inner width must be a multiple of heads"),
        ({"width": 0}, "width is a whole number of at least 1"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        Hybrid(**settings)


def test_a_pattern_may_be_given_as_a_list():
    spec = Hybrid(width=8, depth=3, pattern=["attention", "mamba2", "mamba2"])
    assert spec.pattern == ("attention", "mamba2", "mamba2")
