"""Linear attention against averages written from the definition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.windtunnel.models.linear_attention import LinearAttention

torch = pytest.importorskip("torch")

from tests.windtunnel.networks import mixers  # noqa: E402

from beliefspace.core.taps import NO_TAP  # noqa: E402
from beliefspace.windtunnel.networks.base import Initializer  # noqa: E402
from beliefspace.windtunnel.networks.linear_attention import LinearAttentionMixer  # noqa: E402

SMALL = LinearAttention(width=8, depth=2, heads=2)
GRID = (
    SMALL,
    replace(SMALL, chunk=4, feed_forward=0, feature_map="relu"),
    replace(SMALL, heads=None, depth=1, chunk=5, logit_scale=3.0),
)


def by_hand(mixer, x):
    """Averages of values with weights φ(q)·φ(k), query by query."""
    heads, width = mixer.spec.head_count, mixer.spec.head_width
    rows = []
    for sequence in x:
        q, k, v = (
            (sequence @ part.weight.T).reshape(-1, heads, width)
            for part in (mixer.queries, mixer.keys, mixer.values)
        )
        if mixer.spec.feature_map == "elu":
            q, k = (torch.where(u > 0, u + 1, torch.exp(u)) for u in (q, k))
        else:
            q, k = (torch.where(u > 0, u, 0.0) for u in (q, k))
        for t in range(len(sequence)):
            outputs = []
            for head in range(heads):
                weights = torch.stack([q[t, head] @ k[s, head] for s in range(t + 1)])
                outputs.append(weights @ v[: t + 1, head] / (weights.sum() + 1e-6))
            rows.append(torch.cat(outputs) @ mixer.output.weight.T)
    return torch.stack(rows).view_as(x)


@pytest.mark.parametrize("spec", GRID)
def test_the_mixer_equals_its_formulas_and_so_do_its_gradients(spec):
    mixer = LinearAttentionMixer(spec, Initializer(mixers.STREAM), 0.5)
    x = torch.randn(2, 9, spec.width, generator=torch.Generator().manual_seed(0))
    mixers.check_formulas(mixer, by_hand, x)


@pytest.mark.parametrize("feature_map", ["elu", "relu"])
def test_features_that_vanish_leave_outputs_and_gradients_finite(feature_map):
    spec = replace(SMALL, feature_map=feature_map)
    mixer = LinearAttentionMixer(spec, Initializer(mixers.STREAM), 1.0)
    with torch.no_grad():
        for part in (mixer.queries, mixer.keys):
            part.weight.fill_(-100.0)
    y = mixer(torch.ones(2, 5, 8), NO_TAP)
    y.square().sum().backward()
    assert torch.isfinite(y).all()
    assert all(torch.isfinite(p.grad).all() for p in mixer.parameters())


def test_the_past_is_a_bag():
    """Without positions the last output does not depend on the order of what came before."""
    network, x = mixers.built(replace(SMALL, depth=1)).double(), mixers.batch(mixers.TOKENS)
    with torch.no_grad():
        last = network(x)[:, -1]
        shuffled = network(torch.cat((x[:, :-1].flip(1), x[:, -1:]), dim=1))[:, -1]
    torch.testing.assert_close(shuffled, last, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", [*GRID, replace(SMALL, side="inject")])
def test_every_setting_counts_streams_and_opens(spec):
    mixers.check_setting(spec)


def test_chunks_change_nothing():
    mixers.check_chunks(replace(SMALL, chunk=4), SMALL)


def test_it_learns():
    mixers.check_learns(replace(SMALL, width=16))


def test_sizes_resolve_to_the_usual_ones():
    assert [LinearAttention(width=width).head_count for width in (64, 192, 16, 100)] == [2, 6, 1, 2]
    assert LinearAttention(width=64).head_width == 32


def test_operations_grow_linearly_beyond_a_chunk():
    mixers.check_operations_beyond_a_chunk(LinearAttention(width=64))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"heads": 3}, "multiple of heads; got width 64, heads 3"),
        ({"heads": 0}, "heads is a whole number of at least 1; got 0"),
        ({"feature_map": "elo"}, "nearest: elu"),
        ({"chunk": 0}, "chunk is a whole number"),
        ({"depth": 0}, "depth is a whole number"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        LinearAttention(**settings)
