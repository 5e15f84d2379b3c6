"""The feed-forward network against loops over padded prefixes, and what each view can see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import resolve
from beliefspace.windtunnel.models.mlp import MLP
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.tasks.base import (
    CategoricalOutputs,
    NormalOutputs,
    RealInputs,
    TokenInputs,
)

torch = pytest.importorskip("torch")

from tests.windtunnel.networks import mixers  # noqa: E402
from tests.windtunnel.networks.mixers import STREAM, Shape, batch  # noqa: E402

SMALL = MLP(width=6, depth=2, feed_forward=5)
VIEWS = ("position", "prefix", "pooled")
TOKENS = Shape(length=9)
REALS = Shape(RealInputs(3), NormalOutputs(), length=9)
HEADED = Shape(RealInputs(3), NormalOutputs(), length=9, prefix=4)
SETTINGS = [
    pytest.param(replace(SMALL, view=view, side=side, feed_forward=hidden), task, id=name)
    for view in VIEWS
    for name, task, side, hidden in (
        (f"{view}-tokens", TOKENS, "prefix", 5),
        (f"{view}-reals", REALS, "prefix", 0),
        (f"{view}-injected", HEADED, "inject", 5),
    )
]


def built(spec, task=TOKENS):
    return mixers.built(spec, task, size=0.3).double()


def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / 2**0.5))


def layer_norm(x, gain):
    centred = x - x.mean()
    return centred / (centred.square().mean() + 1e-5).sqrt() * gain


def by_hand(network, spec, task, x):
    """Outputs, one position of one sequence at a time, every prefix flattened and padded anew."""
    weights = dict(network.named_parameters())
    tokens = isinstance(task.inputs, TokenInputs)
    skipped = task.prefix if spec.side == "inject" else 0
    one_hot = torch.eye(7, dtype=torch.float64)[x] if tokens else x.double()
    embedding = weights["embedding.table"] if tokens else weights["embedding.map.weight"].T
    length, outputs = task.length - skipped, []
    for row in one_hot:
        header, seen = row[:skipped], row[skipped:]
        for t in range(length):
            view = seen[t] @ embedding + weights["positions"][t]
            if spec.view == "prefix":
                padded = torch.zeros_like(seen)
                padded[: t + 1] = seen[: t + 1]
                view = view + padded.flatten() @ weights["past.table"].flatten(0, 1)
            if spec.view == "pooled":
                mean = torch.stack([seen[i] @ embedding for i in range(t + 1)]).mean(dim=0)
                view = view + weights["past.map.weight"] @ mean
            if skipped:
                view = view + weights["side.map.weight"] @ header.flatten()
            for layer in range(spec.depth):
                hidden = layer_norm(view, weights[f"layers.{layer}.norm.weight"])
                if spec.hidden_width:
                    hidden = weights[f"layers.{layer}.up.weight"] @ hidden
                view = view + weights[f"layers.{layer}.down.weight"] @ gelu(hidden)
            view = layer_norm(view, weights["final_norm.weight"])
            outputs.append(spec.logit_scale * weights["head.map.weight"] @ view)
    return torch.stack(outputs).view(len(x), length, -1)


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(("spec", "task"), SETTINGS)
def test_outputs_and_gradients_are_those_of_flattened_padded_prefixes(spec, task):
    spec = replace(spec, logit_scale=3.0)
    network, x = built(spec, task), batch(task)
    skipped = task.prefix if spec.side == "inject" else 0
    given, expected = network(x), by_hand(network, spec, task, x)
    assert not given[:, :skipped].any()
    torch.testing.assert_close(given[:, skipped:], expected, atol=1e-9, rtol=0)
    parameters = list(network.parameters())
    fast = torch.autograd.grad(given.sin().sum(), parameters)
    slow = torch.autograd.grad(expected.sin().sum(), parameters)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize(("spec", "task"), SETTINGS)
def test_one_position_after_another_gives_the_same_outputs(spec, task):
    network, x = built(spec, task), batch(task)
    for dtype, within in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        stream = network.to(dtype).stream(x[:, : task.prefix].numpy())
        with torch.no_grad():
            steps = [stream(x[:, t]) for t in range(task.prefix, task.length)]
            whole = network(x)[:, task.prefix :]
        torch.testing.assert_close(torch.stack(steps, dim=1), whole, atol=within, rtol=0)


@pytest.mark.parametrize("view", VIEWS)
def test_a_header_that_is_read_along_is_streamed_in_one_go(view):
    network, x = built(replace(SMALL, view=view), HEADED), batch(HEADED)
    stream = network.stream(x[:, :4])
    torch.testing.assert_close(stream(x[:, 4]), network(x)[:, 4], atol=1e-9, rtol=0)


# ---------------------------------------------------------------- views


def sees(network, x, at):
    """Return which positions' outputs change with the input at one position."""
    other = x.clone()
    other[:, at] = (x[:, at] + 1) % 7 if x.dtype == torch.int64 else x[:, at] + 1
    with torch.no_grad():
        return (network(other) != network(x)).any(dim=2).all(dim=0).tolist()


@pytest.mark.parametrize("task", [TOKENS, REALS], ids=["tokens", "reals"])
@pytest.mark.parametrize("at", [0, 4, 8])
def test_the_past_is_seen_by_the_views_that_say_so(task, at):
    for view in VIEWS:
        expected = [t == at if view == "position" else t >= at for t in range(9)]
        assert sees(built(replace(SMALL, view=view), task), batch(task), at) == expected


def test_a_position_sees_a_header_only_where_it_is_injected():
    for side, expected in (("prefix", False), ("inject", True)):
        network = built(replace(SMALL, view="position", side=side), HEADED)
        assert sees(network, batch(HEADED), 2)[4:] == [expected] * 5


def test_pooling_forgets_the_order_and_the_flattened_prefix_does_not():
    x = batch(TOKENS)
    mixed = torch.cat([x[:, :8].flip(1), x[:, 8:]], dim=1)
    for view, same in (("pooled", True), ("prefix", False)):
        network = built(replace(SMALL, view=view))
        assert torch.allclose(network(mixed)[:, -1], network(x)[:, -1]) == same


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("position", "10 positions, but only 9 were learned"),
        ("prefix", "10 positions, but only 9 and their part in the flattened prefix were learned"),
    ],
)
def test_no_view_goes_past_what_was_learned(view, words):
    network, longer = built(replace(SMALL, view=view)), batch(TOKENS, length=10)
    with pytest.raises(InvalidInput, match=words):
        network(longer)
    stream = network.stream(longer[:, :0])
    for t in range(9):
        stream(longer[:, t])
    with pytest.raises(InvalidInput, match=words):
        stream(longer[:, 9])


def test_blocks_are_computed_at_the_columns_that_are_wanted_only():
    network, rows = built(SMALL), []
    for block in network.layers:
        block.register_forward_hook(lambda _, given, __: rows.append(given[0].shape[1]))
    x = batch(TOKENS)
    chosen = network(x, columns=[7, 2])
    assert rows == [2, 2]
    torch.testing.assert_close(chosen, network(x)[:, [7, 2]], atol=1e-12, rtol=0)


def test_an_injected_header_has_no_outputs_and_must_be_whole():
    network, x = built(replace(SMALL, side="inject"), HEADED), batch(HEADED)
    assert not network(x, columns=range(9))[:, :4].any()
    with pytest.raises(InvalidInput, match="first 4 positions are a header that is injected"):
        network(x, columns=[3, 5])
    with pytest.raises(InvalidInput, match=r"header is \[n, 4, \d+\]; got \(\d+, 2, "):
        network.stream(x[:, :2])
    with pytest.raises(InvalidInput, match="6 positions after the 4 of the header, but only 5"):
        network(batch(HEADED, length=10))


@pytest.mark.parametrize("view", VIEWS)
def test_inputs_of_another_kind_are_refused(view):
    network = built(replace(SMALL, view=view))
    with pytest.raises(InvalidInput, match="token ids are 0 to 6; got 0 to 7"):
        network(torch.tensor([[0, 7]]))


# ---------------------------------------------------------------- points


@pytest.mark.parametrize(("spec", "task"), SETTINGS)
def test_points_are_what_they_say(spec, task):
    network, x = built(spec, task), batch(task)
    trace = network.record(x, ["*"])
    skipped = task.prefix if spec.side == "inject" else 0
    for point in network.points():
        width = {"logits": trace["logits"].shape[2]}.get(point.name, 6)
        assert point.shape == f"batch time {'outputs' if point.name == 'logits' else 'width'}"
        assert tuple(trace[point.name].shape) == (4, 9 - skipped, width)
    assert ("state" in trace.values) == (spec.view != "position")
    for layer in range(spec.depth):
        added = trace[f"layers.{layer}.residual_out"] - trace[f"layers.{layer}.residual_in"]
        torch.testing.assert_close(added, trace[f"layers.{layer}.mlp_out"])
    if spec.view == "pooled" and not skipped:
        embedded = network.embedding(x)
        torch.testing.assert_close(trace["state"][:, -1], embedded.sum(dim=1))


# ---------------------------------------------------------------- specification


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"width": 0}, "width is a whole number of at least 1; got 0"),
        ({"depth": 1.0}, "depth is a whole number"),
        ({"feed_forward": -1}, "feed_forward is a whole number of at least 0"),
        ({"view": "pool"}, "view is one of position, prefix, pooled; got 'pool' .nearest: pooled"),
        ({"side": "left"}, "side is one of prefix, inject"),
        ({"logit_scale": 0.0}, "logit_scale is a finite number greater than 0"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        MLP(**settings)


def test_a_header_that_is_not_there_cannot_be_injected():
    for use in (MLP(side="inject").parameters, lambda task: MLP(side="inject").build(task, STREAM)):
        with pytest.raises(InvalidInput, match="needs a task with a header of vectors"):
            use(TOKENS)


@pytest.mark.parametrize(("spec", "task"), SETTINGS)
def test_the_count_equals_the_built_network(spec, task):
    network = spec.build(task, STREAM)
    assert spec.parameters(task) == sum(p.numel() for p in network.parameters())


def test_the_published_size_matches_the_published_transformer():
    """Within 1 % of it, as reported, on bijection as released (20 tokens, 39 positions)."""
    task = Shape(TokenInputs(20), CategoricalOutputs(tuple(range(20))), 39)
    count = MLP.published().parameters(task)
    # By hand: eighteen maps, nineteen gains, positions, tokens in and out.
    assert count == 18 * 384**2 + (19 + 39 + 20 + 20) * 384
    assert abs(count / Transformer.published().parameters(task) - 1) < 0.01


def test_operations_count_products_three_times_over():
    # At 9 positions: 2 x 6 x 5 products a block, 6 x 4 or 6 x 2 to read out, 6 x 6 to pool.
    assert SMALL.operations(TOKENS) == 6 * 9 * (2 * 60 + 24 + 36)
    assert replace(SMALL, view="prefix").operations(TOKENS) == 6 * 9 * (2 * 60 + 24)
    assert replace(SMALL, view="prefix").operations(REALS) == 6 * 9 * (2 * 60 + 12 + 18)
    injected = replace(SMALL, view="position", side="inject", feed_forward=0)
    assert injected.operations(HEADED) == 6 * 5 * (2 * 36 + 12)


def test_it_is_registered():
    assert resolve("models", "mlp") is MLP


@pytest.mark.parametrize("view", VIEWS)
def test_all_but_norms_are_drawn(view):
    mixers.check_constants(replace(SMALL, view=view), "norm.weight")


# ---------------------------------------------------------------- learning


@pytest.mark.parametrize(("view", "learns"), [("position", False), ("prefix", True)])
def test_the_token_before_is_learnt_where_it_is_in_sight(view, learns):
    task = Shape(TokenInputs(3), CategoricalOutputs((0, 1, 2)), 4)
    network = MLP(width=24, depth=2, view=view).build(task, STREAM)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for step in range(120):
        x = batch(task, rows=32, seed=step)
        loss = torch.nn.functional.cross_entropy(
            network(x, columns=[1, 2, 3]).flatten(0, 1), x[:, :3].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (loss.item() < 0.2) == learns
    assert loss.item() < 1.2  # ln 3 = 1.1: blind, it is as good as guessing
