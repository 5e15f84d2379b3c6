"""The transformer against its own claims: causal, counted, open to view, and repeatable."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beliefspace.core.errors import InvalidInput, UnknownName
from beliefspace.core.registry import resolve
from beliefspace.core.streams import Stream
from beliefspace.core.trace import points
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.tasks.base import (
    CategoricalOutputs,
    NormalOutputs,
    RealInputs,
    TokenInputs,
)

torch = pytest.importorskip("torch")

POSITIONS = ("learned", "rotary", "alibi", "relative", "none")
STREAM = Stream(3, "initial")
SMALL = Transformer(width=16, depth=2, heads=2)


SEVEN_TOKENS = TokenInputs(7)
LAST_FOUR = CategoricalOutputs((3, 4, 5, 6))


@dataclass(frozen=True)
class Shape:
    """As much of a task as a model looks at."""

    inputs: TokenInputs | RealInputs = SEVEN_TOKENS
    outputs: CategoricalOutputs | NormalOutputs = LAST_FOUR
    length: int = 9
    prefix: int = 0


TOKENS = Shape()
REALS = Shape(RealInputs(3), NormalOutputs())
REAL_CLASSES = Shape(RealInputs(3), CategoricalOutputs((0, 1)), prefix=3)
GAPS = Shape(outputs=CategoricalOutputs((0, 6, 2)))


def batch(task, rows=5, length=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    length = length or task.length
    if isinstance(task.inputs, TokenInputs):
        return torch.randint(task.inputs.vocabulary, (rows, length), generator=generator)
    return torch.randn(rows, length, task.inputs.features, generator=generator)


def built(spec, task=TOKENS):
    """A network whose every parameter is in use: gains, biases and tables are not 1 or 0."""
    network = spec.build(task, STREAM)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return network


def changed(x, at):
    other = x.clone()
    other[:, at] = (x[:, at] + 1) % 7 if x.dtype == torch.int64 else x[:, at] + 1
    return other


# ---------------------------------------------------------------- specification


def test_the_specification_imports_no_torch():
    code = (
        "import sys; from beliefspace.core.registry import resolve; "
        "resolve('models', 'transformer')(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert resolve("models", "transformer") is Transformer


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"width": 10, "heads": 3}, "multiple of heads; got width 10, heads 3"),
        ({"width": 0}, "width is a whole number of at least 1; got 0"),
        ({"depth": True}, "depth is a whole number"),
        ({"feed_forward": -1}, "feed_forward is a whole number of at least 0"),
        ({"window": 3}, 'window needs positions = "relative"'),
        ({"window": 0, "positions": "relative"}, "window is a whole number of at least 1"),
        (
            {"width": 6, "heads": 2, "positions": "rotary"},
            r"must be even; got width 6 / heads 2 = 3",
        ),
        ({"positions": "rotery"}, "nearest: rotary"),
        ({"norm": "batch"}, "norm is one of layer, rms; got 'batch'"),
        ({"biases": False}, "biases is one of none, feed_forward, all; got False"),
    ],
)
def test_choices_that_do_not_go_together_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        Transformer(**settings)


def test_a_tied_head_needs_outcomes_that_are_input_tokens():
    tied = replace(SMALL, head="tied")
    outside = Shape(outputs=CategoricalOutputs((0, 7)))
    for task, words in ((REALS, "RealInputs and NormalOutputs"), (outside, "7 and 7 input tokens")):
        for use in (tied.parameters, lambda task: tied.build(task, STREAM)):
            with pytest.raises(InvalidInput, match=words):
                use(task)


@given(width=st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_the_default_number_of_heads_divides_the_width(width):
    spec = Transformer(width=width)
    assert width % spec.head_count == 0
    assert spec.head_width >= min(32, width)


def test_sizes_resolve_to_the_usual_ones():
    assert (Transformer(width=64).head_count, Transformer(width=192).head_count) == (2, 6)
    assert Transformer(width=64).hidden_width == 256
    # 8/3 x 96 = 256: three matrices of it cost what two of 4 x 96 do.
    assert Transformer(width=96, activation="swiglu").hidden_width == 256
    assert Transformer.preset(96, 3) == Transformer(width=96, depth=3)


@pytest.mark.parametrize(
    ("vocabulary", "length", "count"), [(20, 39, 2_673_792), (40, 37, 2_677_248)]
)
def test_the_published_model_has_the_published_count(vocabulary, length, count):
    """Formats A and B of 2512.22471: 2.674 M and 2.677 M."""
    task = Shape(TokenInputs(vocabulary), CategoricalOutputs(tuple(range(20))), length)
    assert Transformer.published().parameters(task) == count
    # By hand: embedding, positions, six blocks, thirteen gains, feed-forward biases.
    block = 4 * 192**2 + 2 * 192 * 768 + 768 + 192
    assert count == (vocabulary + length) * 192 + 6 * block + 13 * 192


GRID = [
    Transformer(
        16,
        2,
        2,
        feed_forward,
        positions,
        window,
        norm,
        activation,
        head,
        biases=biases,
        qk_norm=qk,
    )
    for feed_forward, (positions, window), norm, (activation, biases), (
        head,
        qk,
    ) in itertools.product(
        (None, 0, 5),
        (("learned", None), ("rotary", None), ("alibi", None), ("relative", None), ("relative", 3)),
        ("layer", "rms"),
        (("gelu", "none"), ("swiglu", "feed_forward"), ("relu2", "all")),
        (("untied", False), ("tied", True)),
    )
]


@pytest.mark.parametrize("task", [TOKENS, GAPS, REALS, REAL_CLASSES], ids=["A", "B", "C", "D"])
def test_the_count_equals_the_built_network(task):
    for spec in GRID:
        if spec.head == "tied" and task in (REALS, REAL_CLASSES):
            continue
        network = spec.build(task, STREAM)
        assert spec.parameters(task) == sum(p.numel() for p in network.parameters()), spec


# ---------------------------------------------------------------- initial values


def test_the_same_stream_gives_the_same_bits_and_leaves_torch_alone():
    before = torch.get_rng_state()
    first = SMALL.build(TOKENS, STREAM)
    torch.manual_seed(99)
    second = SMALL.build(TOKENS, STREAM)
    other = SMALL.build(TOKENS, Stream(4, "initial"))
    torch.set_rng_state(before)
    SMALL.build(TOKENS, STREAM)
    assert torch.equal(torch.get_rng_state(), before)
    assert first.state_dict().keys() == second.state_dict().keys()
    for name, value in first.state_dict().items():
        assert torch.isfinite(value).all()
        assert torch.equal(value, second.state_dict()[name])
        constant = "norm" in name
        assert torch.equal(value, other.state_dict()[name]) == constant


def test_frozen_attention_keeps_queries_and_keys():
    network = replace(SMALL, frozen_attention=True, qk_norm=True, biases="all").build(
        TOKENS, STREAM
    )
    names = {name for name, p in network.named_parameters() if not p.requires_grad}
    assert names == {
        f"layers.{layer}.attention.{part}"
        for layer in (0, 1)
        for part in (
            "queries.weight", "queries.bias", "keys.weight", "keys.bias",
            "query_norm.weight", "key_norm.weight",
        )
    }  # fmt: skip
    start = network.layers[0].attention.keys.weight.clone()
    optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1)
    network(batch(TOKENS)).square().sum().backward()
    optimizer.step()
    assert torch.equal(network.layers[0].attention.keys.weight, start)
    # Initial values are those of the model that is not frozen.
    free = replace(SMALL, qk_norm=True, biases="all").build(TOKENS, STREAM)
    assert torch.equal(start, free.layers[0].attention.keys.weight)


# ---------------------------------------------------------------- what sees what


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("task", [TOKENS, REALS], ids=["tokens", "reals"])
def test_no_output_depends_on_a_later_input(positions, task):
    network = built(replace(SMALL, positions=positions), task)
    x = batch(task)
    with torch.no_grad():
        plain = network(x)
        for at in range(task.length):
            other = network(changed(x, at))
            assert torch.equal(other[:, :at], plain[:, :at])
            assert not torch.equal(other[:, at], plain[:, at])


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_prefix_sees_itself_both_ways_and_nothing_later(positions):
    task = replace(TOKENS, prefix=3)
    network = built(replace(SMALL, depth=1, positions=positions), task)
    x = batch(task)
    attention = network.record(x, ["layers.0.attention"])["layers.0.attention"]
    seen = (attention > 0).all(dim=0).all(dim=0)
    # Written out: rows are queries, columns keys.
    expected = np.tril(np.ones((9, 9), dtype=bool))
    expected[:3, :3] = True
    assert np.array_equal(seen.numpy(), expected)
    assert torch.equal(attention == 0, ~seen.expand_as(attention))
    with torch.no_grad():
        plain, other = network(x), network(changed(x, 2))
        assert (other[:, 0] != plain[:, 0]).any()
        later = network(changed(x, 5))
    torch.testing.assert_close(later[:, :5], plain[:, :5], atol=1e-6, rtol=0)


@pytest.mark.parametrize("positions", ["alibi", "relative"])
def test_prefix_keys_get_no_bias(positions):
    task = replace(TOKENS, prefix=3)
    network = built(replace(SMALL, depth=1, positions=positions), task)
    trace = network.record(batch(task), ["layers.0.*"])
    q, k = trace["layers.0.queries"], trace["layers.0.keys"]
    bias = trace["layers.0.scores"] - q @ k.transpose(2, 3) / 8**0.5
    torch.testing.assert_close(bias[..., :3], torch.zeros_like(bias[..., :3]), atol=1e-5, rtol=0)
    attention = network.layers[0].attention
    for head, query, key in itertools.product(range(2), range(3, 9), range(3, 9)):
        if key > query:
            assert bias[0, head, query, key] == -np.inf
            continue
        back = query - key
        table = attention.bias.table[head, back].item() if positions == "relative" else 0
        # Two heads: slopes 1/16 and 1/256.
        expected = table if positions == "relative" else -back * (1 / 16, 1 / 256)[head]
        assert bias[:, head, query, key].numpy() == pytest.approx(expected, abs=1e-5)


def test_a_window_hides_what_lies_beyond_but_never_the_prefix():
    task = replace(TOKENS, prefix=2)
    network = built(replace(SMALL, depth=1, positions="relative", window=3), task)
    x = batch(task)
    attention = network.record(x, ["layers.0.attention"])["layers.0.attention"]
    for query, key in itertools.product(range(9), range(9)):
        visible = key < 2 or (key <= query and query - key <= 2)
        assert (attention[:, :, query, key] > 0).all() == visible
        assert (attention[:, :, query, key] == 0).all() != visible
    with torch.no_grad():
        plain, other = network(x), network(changed(x, 3))
    torch.testing.assert_close(other[:, 6:], plain[:, 6:], atol=1e-6, rtol=0)
    assert (other[:, 5] != plain[:, 5]).any()


def test_alibi_slopes_are_the_published_ones():
    """2108.12409, section 3; for 12 heads as in the authors' code."""
    from beliefspace.windtunnel.networks.positions import alibi_slopes

    assert alibi_slopes(8) == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(12) == [2.0**-n for n in range(1, 9)] + [
        2.0 ** -(n + 0.5) for n in range(4)
    ]
    assert alibi_slopes(1) == [2.0**-8]


def test_rotary_scores_depend_on_distance_only():
    network = built(replace(SMALL, depth=1, positions="rotary"))
    same = torch.full((1, 9), 4)
    trace = network.record(same, ["layers.0.*"])
    scores = trace["layers.0.scores"][0]
    for back in range(1, 9):
        along = torch.diagonal(scores, -back, dim1=1, dim2=2)
        torch.testing.assert_close(along, along[:, :1].expand_as(along))
    # A rotation by t radians in the first pair of channels, 0 and d/2 (head width 8).
    k = trace["layers.0.keys"][0, 0].numpy()
    turned = trace["layers.0.keys_rotary"][0, 0].numpy()
    complex_keys = (k[:, 0] + 1j * k[:, 4]) * np.exp(1j * np.arange(9))
    assert turned[:, 0] + 1j * turned[:, 4] == pytest.approx(complex_keys, abs=1e-5)
    slowest = (k[:, 3] + 1j * k[:, 7]) * np.exp(1j * np.arange(9) * 1e4 ** (-6 / 8))
    assert turned[:, 3] + 1j * turned[:, 7] == pytest.approx(slowest, abs=1e-5)


def test_without_positions_the_order_of_the_past_does_not_show():
    network = built(replace(SMALL, depth=1, positions="none"))
    x = batch(TOKENS)
    mixed = torch.cat([x[:, :8].flip(1), x[:, 8:]], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(network(mixed)[:, -1], network(x)[:, -1])
        learned = built(replace(SMALL, depth=1))
        assert not torch.allclose(learned(mixed)[:, -1], learned(x)[:, -1])


@pytest.mark.parametrize("positions", POSITIONS)
def test_longer_inputs_run_unless_positions_are_learned(positions):
    network = built(replace(SMALL, positions=positions))
    x = batch(TOKENS, length=12)
    if positions == "learned":
        with pytest.raises(InvalidInput, match="12 positions, but only 9 were learned"):
            network(x)
        return
    with torch.no_grad():
        longer = network(x)
        torch.testing.assert_close(longer[:, :9], network(x[:, :9]), atol=1e-5, rtol=1e-5)
    assert longer.shape == (5, 12, 4)


# ---------------------------------------------------------------- columns


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("prefix", [0, 3])
@pytest.mark.parametrize("depth", [1, 2])
def test_chosen_columns_are_the_same_numbers(positions, prefix, depth):
    task = replace(TOKENS, prefix=prefix)
    network = built(replace(SMALL, positions=positions, depth=depth), task)
    x = batch(task)
    everything = network(x)
    for columns in ([0, 2, 4, 6, 8], np.array([1]), torch.tensor([7, 3]), range(9)):
        chosen = network(x, columns=columns)
        expected = everything[:, list(map(int, columns))]
        torch.testing.assert_close(chosen, expected, atol=1e-5, rtol=1e-5)


def test_chosen_columns_have_the_same_gradients():
    network = built(SMALL)
    x = batch(TOKENS)
    network(x)[:, [2, 5]].square().sum().backward()
    expected = {name: p.grad.clone() for name, p in network.named_parameters()}
    network.zero_grad()
    network(x, columns=[2, 5]).square().sum().backward()
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], atol=1e-4, rtol=1e-4)


def test_the_last_layer_works_at_the_chosen_columns_only():
    """Counted, not timed: rows that each linear map of the last layer was given."""
    network = built(SMALL)
    rows = {}
    for name, part in network.named_modules():
        if isinstance(part, torch.nn.Linear):
            part.register_forward_hook(
                lambda _, given, __, name=name: rows.__setitem__(name, given[0].shape[1])
            )
    network(batch(TOKENS), columns=[0, 4])
    last = {name: count for name, count in rows.items() if name.startswith(("layers.1", "head"))}
    everywhere = {"layers.1.attention.keys", "layers.1.attention.values"}
    assert {name for name, count in last.items() if count == 9} == everywhere
    assert {name for name, count in last.items() if count == 2} == last.keys() - everywhere
    assert {count for name, count in rows.items() if name.startswith("layers.0")} == {9}


@pytest.mark.parametrize("columns", [[9], [-1], [], [[1]]])
def test_columns_outside_the_sequence_are_refused(columns):
    with pytest.raises(InvalidInput, match="columns are a list of positions 0 to 8"):
        built(SMALL)(batch(TOKENS), columns=columns)


# ---------------------------------------------------------------- points

VARIANTS = {
    "plain": (SMALL, TOKENS),
    "rotary": (replace(SMALL, positions="rotary", qk_norm=True, norm="rms"), TOKENS),
    "window": (replace(SMALL, positions="relative", window=3), replace(TOKENS, prefix=2)),
    "alibi": (replace(SMALL, positions="alibi", activation="swiglu", biases="all"), REALS),
    "attention-only": (replace(SMALL, feed_forward=0, head="tied"), GAPS),
}
CASES = [
    (variant, point.name)
    for variant, (spec, task) in VARIANTS.items()
    for point in spec.build(task, STREAM).points()
]


def bump(value):
    """Change a value by something that no norm or softmax takes out again."""
    return 1.5 * value + torch.linspace(-1, 1, value.shape[-1])


@pytest.mark.parametrize(("variant", "name"), CASES)
def test_every_point_is_live(variant, name):
    spec, task = VARIANTS[variant]
    network, x = built(spec, task), batch(task)
    plain, nothing = network.run(x)
    assert dict(nothing.values) == {}
    read, trace = network.run(x, [name])
    assert list(trace.values) == [name]
    if not name.endswith(("scores", "attention")):
        assert torch.equal(read, plain)
    torch.testing.assert_close(read, plain, atol=1e-5, rtol=1e-5)
    edited, again = network.edit({name: bump}).run(x, [name])
    assert (edited - plain).abs().max() > 1e-3
    assert torch.equal(again[name], bump(trace[name]))
    # The original is untouched, and an edit that changes nothing changes nothing.
    assert torch.equal(network.run(x)[0], plain)
    assert torch.equal(network.edit({name: lambda value: value}).run(x)[0], read)


@pytest.mark.parametrize("variant", VARIANTS)
def test_points_are_passed_in_the_order_listed_and_shaped_as_said(variant):
    spec, task = VARIANTS[variant]
    network, passed = built(spec, task), []

    class Listing:
        active = True

        def wants(self, name):
            return True

        def __call__(self, name, value):
            passed.append((name, tuple(value.shape)))
            return value

    network(batch(task), tap=Listing())
    sizes = {
        "batch": 5, "time": 9, "width": 16, "heads": 2, "head_width": 8,
        "query_time": 9, "key_time": 9,
        "outputs": 2 if task is REALS else len(task.outputs.support),
    }  # fmt: skip
    assert passed == [
        (point.name, tuple(sizes[axis] for axis in point.shape.split()))
        for point in network.points()
    ]


def test_absent_parts_have_no_points():
    names = [point.name for point in replace(SMALL, feed_forward=0).build(TOKENS, STREAM).points()]
    assert not [name for name in names if "mlp" in name or "rotary" in name]
    with pytest.raises(UnknownName, match="mlp_out"):
        built(replace(SMALL, feed_forward=0)).run(batch(TOKENS), ["layers.0.mlp_out"])


def test_nothing_is_made_or_kept_when_nothing_is_asked(monkeypatch):
    """Scores and attention exist on request only; an inactive tap reaches every block as it is."""
    from beliefspace.core.taps import NO_TAP
    from beliefspace.windtunnel.networks.attention import Attention

    network, opened, taps = built(SMALL), [], []
    explicit, forward = Attention._open, Attention.forward

    def counting_open(self, *arguments):
        opened.append(self)
        return explicit(self, *arguments)

    def counting_forward(self, x, sight, rotation, tap):
        taps.append(tap)
        return forward(self, x, sight, rotation, tap)

    monkeypatch.setattr(Attention, "_open", counting_open)
    monkeypatch.setattr(Attention, "forward", counting_forward)
    x = batch(TOKENS)
    network(x)
    network.run(x)
    assert all(tap is NO_TAP for tap in taps)
    network.run(x, ["layers.*.keys", "layers.*.head_outputs"])
    assert opened == []
    network.run(x, ["layers.1.attention"])
    assert opened == [network.layers[1].attention]


def test_attention_rebuilds_from_its_recorded_parts():
    network = built(SMALL)
    trace = network.record(batch(TOKENS), ["layers.1.*"])
    q, k, v, scores, attention, mixed = (
        trace[f"layers.1.{name}"].double().numpy()
        for name in ("queries", "keys", "values", "scores", "attention", "head_outputs")
    )
    expected = np.einsum("nhqd,nhkd->nhqk", q, k) / 8**0.5
    expected[..., ~np.tril(np.ones((9, 9), dtype=bool))] = -np.inf
    assert np.allclose(np.exp(scores), np.exp(expected), atol=1e-5)
    weights = np.exp(expected) / np.exp(expected).sum(axis=-1, keepdims=True)
    assert np.allclose(attention, weights, atol=1e-6)
    assert np.allclose(mixed, weights @ v, atol=1e-5)
    flat = mixed.transpose(0, 2, 1, 3).reshape(5, 9, 16)
    output = network.layers[1].attention.output.weight.detach().double().numpy()
    out = flat @ output.T
    assert np.allclose(out, trace["layers.1.attention_out"].numpy(), atol=1e-5)
    middle = trace["layers.1.residual_in"].numpy() + out
    assert np.allclose(middle, trace["layers.1.residual_mid"].numpy(), atol=1e-5)
    after = trace["layers.1.residual_mid"] + trace["layers.1.mlp_out"]
    assert torch.equal(after, trace["layers.1.residual_out"])


def test_edits_compose_over_layers():
    network, x = built(SMALL), batch(TOKENS)
    once = network.edit({"layers.0.head_outputs": torch.zeros_like})
    twice = once.edit({"layers.*.mlp_out": torch.zeros_like})
    trace = twice.record(x, ["layers.0.*"])
    embed = network.record(x, ["embed"])["embed"]
    # No output bias: without heads and feed-forward the block is the identity.
    assert torch.equal(trace["layers.0.residual_out"], embed)
    assert not torch.equal(once(x), network.run(x)[0])
    assert not torch.equal(once(x), twice(x))


def test_gradients_by_points_match_a_finite_difference():
    network, x = built(SMALL).double(), batch(TOKENS)
    loss = lambda out: out.square().sum()  # noqa: E731
    names = ["layers.0.attention", "layers.1.residual_in"]
    trace = network.record(x, names, gradients=loss)
    for name in names:
        grid = torch.linspace(-1, 1, trace[name].numel(), dtype=torch.float64)
        step = 1e-5 * grid.reshape(trace[name].shape)
        up = loss(network.edit({name: step.add})(x))
        down = loss(network.edit({name: (-step).add})(x))
        slope = (trace.gradients[name] * step).sum()
        assert ((up - down) / 2).item() == pytest.approx(slope.item(), rel=1e-5)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_trace_carries_positions_lengths_heads_and_weights():
    network = built(SMALL)
    _, trace = network.run(batch(TOKENS).numpy(), weights=True)
    assert trace.positions.tolist() == list(range(9))
    assert trace.lengths.tolist() == [9] * 5
    assert trace.head_map == {0: (0,), 1: (1,)}
    assert points(network) == network.points()
    parameters = dict(network.named_parameters())
    assert trace.weights.keys() == parameters.keys()
    with torch.no_grad():
        network.layers[0].attention.keys.weight.zero_()
    assert trace.weights["layers.0.attention.keys.weight"].any()


# ---------------------------------------------------------------- ends


def test_a_tied_head_is_the_embedding():
    network = built(replace(SMALL, head="tied"), GAPS)
    assert [name for name, _ in network.named_parameters() if "head" in name] == []
    trace = network.record(batch(GAPS), ["final_norm", "logits"])
    table = network.embedding.table.detach()
    torch.testing.assert_close(trace["logits"], trace["final_norm"] @ table[[0, 6, 2]].T)
    with torch.no_grad():
        network.embedding.table[2] = 0
    assert not network(batch(GAPS))[..., 2].any()
    network(batch(GAPS))[..., 1].sum().backward()
    assert network.embedding.table.grad[6].any()


def test_outputs_have_one_column_per_outcome_or_mean_and_log_variance():
    assert built(SMALL, GAPS)(batch(GAPS)).shape == (5, 9, 3)
    assert built(SMALL, REALS)(batch(REALS)).shape == (5, 9, 2)
    assert built(SMALL, REAL_CLASSES)(batch(REAL_CLASSES).double()).shape == (5, 9, 2)


@pytest.mark.parametrize(
    ("task", "inputs", "words"),
    [
        (TOKENS, torch.tensor([[0, 7]]), "token ids are 0 to 6; got 0 to 7"),
        (TOKENS, torch.tensor([[-1, 2]]), "token ids are 0 to 6; got -1 to 2"),
        (TOKENS, torch.zeros(2, 3), r"expected token ids \[n, T\]; got float32 \(2, 3\)"),
        (TOKENS, torch.zeros(2, 3, 1, dtype=torch.int64), r"got int64 \(2, 3, 1\)"),
        (REALS, torch.zeros(2, 9, 4), r"real features \[n, T, 3\]; got float32 \(2, 9, 4\)"),
        (REALS, torch.zeros(2, 9, 3, dtype=torch.int64), "got int64"),
    ],
)
def test_inputs_of_another_kind_are_refused(task, inputs, words):
    with pytest.raises(InvalidInput, match=words):
        built(SMALL, task)(inputs)


def test_a_checkpoint_round_trips_through_arrays():
    network, other = built(SMALL), SMALL.build(TOKENS, Stream(8, "initial"))
    arrays = {name: value.numpy().copy() for name, value in network.state_dict().items()}
    other.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
    x = batch(TOKENS)
    assert torch.equal(network.run(x)[0], other.run(x)[0])


def test_it_learns_what_it_is_shown():
    """Copying the last token is learnt in a few steps: gradients reach every part."""
    task = Shape(outputs=CategoricalOutputs(tuple(range(7))))
    network = replace(SMALL, positions="rotary").build(task, STREAM)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for step in range(80):
        x = batch(task, rows=32, seed=step)
        loss = torch.nn.functional.cross_entropy(network(x).flatten(0, 1), x.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert all(p.grad is not None and p.grad.any() for p in network.parameters())
    assert loss.item() < 0.1
