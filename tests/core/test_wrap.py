"""Any torch module as a runner: tuples, inputs, slices, and hooks that never stay."""

from __future__ import annotations

import numpy as np
import pytest

from beliefspace.core.errors import BeliefspaceError, InvalidInput, UnknownName
from beliefspace.core.wrap import At, wrap

torch = pytest.importorskip("torch")
nn = torch.nn


def hooks(module):
    return sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules())


class Small(nn.Module):
    """Embedding, a nested pair of blocks that add in place, an LSTM, and a head."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embedding = nn.Embedding(5, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU(True)) for _ in "ab")
        self.rnn = nn.LSTM(4, 4, batch_first=True)
        self.unused = nn.Linear(4, 4)
        self.head = nn.Linear(4, 5)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(generator=generator)

    def forward(self, tokens, scale=None):
        x = self.embedding(tokens)
        for block in self.blocks:
            # In place, as inference code does; with a graph torch itself forbids that.
            x = x + block(x) if torch.is_grad_enabled() else x.add_(block(x))
        x, _ = self.rnn(x)
        logits = self.head(input=x)
        return {"logits": logits if scale is None else logits * scale, "state": (x, tokens)}


PLACES = {
    "embed": "embedding",
    "layers.0.residual_in": ("blocks.0", "input"),
    "layers.0.mlp": "blocks.0.0",
    "layers.1.mlp": At("blocks.1"),
    "layers.2.state": At("rnn", index=0),
    "layers.2.cell": At("rnn", index=(1, 1)),
    "final": At("head", "input", index="input"),
    "half": At("blocks.1.0", slice=slice(2, 4)),
    "logits": At("", index="logits"),
}
TOKENS = np.array([[0, 1, 2], [4, 3, 3]])


@pytest.fixture
def module():
    return Small()


@pytest.fixture
def runner(module):
    return wrap(module, PLACES, outputs=lambda result: result["logits"])


def test_scoring_needs_no_hook(module, runner):
    with torch.no_grad():
        expected = module(torch.tensor(TOKENS))["logits"]
    assert torch.equal(runner(TOKENS), expected)
    assert not runner(TOKENS).requires_grad


@pytest.mark.parametrize("name", PLACES)
def test_every_point_is_live(module, runner, name):
    plain = runner(TOKENS)
    outputs, trace = runner.run(TOKENS, [name])
    assert torch.equal(outputs, plain)
    # The cell state after the last position goes nowhere: an edit of it must not reach the outputs.
    changed = runner.edit({name: lambda value: value + 1})
    assert torch.equal(changed(TOKENS), plain) == (name == "layers.2.cell")
    assert torch.equal(changed.record(TOKENS, [name])[name], trace[name] + 1) or name == "half"
    assert torch.equal(runner(TOKENS), plain)
    assert hooks(module) == 0


def test_values_are_those_of_the_module_by_hand(module, runner):
    tokens = torch.tensor(TOKENS)
    trace = runner.record(TOKENS, ["*"])
    with torch.no_grad():
        x = module.embedding.weight[tokens]
        # The module adds to these in place after they were read; the record is from before.
        assert torch.equal(trace["embed"], x)
        assert torch.equal(trace["layers.0.residual_in"], x)
        linear = x @ module.blocks[0][0].weight.T + module.blocks[0][0].bias
        torch.testing.assert_close(trace["layers.0.mlp"], linear)
        x = x + linear.relu()
        linear = x @ module.blocks[1][0].weight.T + module.blocks[1][0].bias
        torch.testing.assert_close(trace["half"], linear[..., 2:])
        torch.testing.assert_close(trace["layers.1.mlp"], linear.relu())
        states, (_, cell) = module.rnn(x + linear.relu())
    torch.testing.assert_close(trace["layers.2.state"], states)
    torch.testing.assert_close(trace["layers.2.cell"], cell)
    torch.testing.assert_close(trace["final"], states)
    assert trace.positions.tolist() == [0, 1, 2]
    assert trace.lengths.tolist() == [3, 3]


def test_a_slice_is_edited_and_the_rest_is_not(runner):
    trace = runner.edit({"half": torch.zeros_like}).record(TOKENS, ["layers.1.mlp", "half"])
    plain = runner.record(TOKENS, ["layers.1.mlp"])
    assert torch.equal(trace["half"], torch.zeros_like(trace["half"]))
    assert torch.equal(trace["layers.1.mlp"][..., :2], plain["layers.1.mlp"][..., :2])
    assert not trace["layers.1.mlp"][..., 2:].any()


def test_three_points_share_one_fused_matrix():
    fused = nn.Linear(2, 6, bias=False)
    places = {f"part.{i}": At("", slice=slice(2 * i, 2 * i + 2)) for i in range(3)}
    runner = wrap(fused, places)
    x = torch.ones(1, 1, 2)
    out = runner.edit({"part.0": torch.zeros_like, "part.2": torch.ones_like})(x)
    with torch.no_grad():
        assert torch.equal(out[..., 2:4], fused(x)[..., 2:4])
    assert out[0, 0, :2].tolist() == [0, 0]
    assert out[0, 0, 4:].tolist() == [1, 1]


def test_hooks_are_gone_after_an_exception_inside_the_module(module, runner):
    with pytest.raises(IndexError):
        runner.run(np.array([[7]]), ["*"])
    assert hooks(module) == 0


def test_hooks_are_gone_after_an_exception_inside_an_edit(module, runner):
    def fail(value):
        assert hooks(module) == 1
        raise RuntimeError("no")

    module.train()
    with pytest.raises(RuntimeError, match="no"):
        runner.edit({"embed": fail}).run(TOKENS)
    assert hooks(module) == 0
    assert module.training


def test_only_what_is_asked_gets_a_hook(module, runner):
    seen = []
    handle = module.head.register_forward_pre_hook(lambda *_: seen.append(hooks(module)))
    runner.run(TOKENS, ["embed"])
    runner.run(TOKENS)
    handle.remove()
    assert seen == [2, 1]


def test_an_unknown_submodule_names_the_nearest(module):
    with pytest.raises(UnknownName, match=r"submodule 'blocks\.0\.9'.*nearest: blocks\.0"):
        wrap(module, {"embed": "blocks.0.9"})


def test_unknown_points_are_refused(runner):
    with pytest.raises(UnknownName, match=r"layers\.0\.mpl"):
        runner.run(TOKENS, ["layers.0.mpl"])
    with pytest.raises(UnknownName):
        runner.edit({"layers.7.*": lambda value: value})


def test_a_submodule_that_did_not_run_is_named(module):
    runner = wrap(module, {"a": "unused", "b": "embedding"})
    with pytest.raises(BeliefspaceError, match="'a' was asked for, but"):
        runner.run(TOKENS, ["a"])
    assert "b" in runner.run(TOKENS, ["b"])[1].values


def test_a_submodule_that_runs_twice_is_ambiguous():
    shared = nn.Linear(2, 2)
    runner = wrap(nn.Sequential(shared, shared), {"a": "0"})
    with pytest.raises(BeliefspaceError, match="came by twice"):
        runner.run(torch.ones(1, 1, 2), ["a"])


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("rnn", "tuple of 2, not a tensor; say which item"),
        (At("rnn", index=5), r"no item 5 in a tuple of 2"),
        (At("rnn", index=(1, "c")), r"no item 'c' in a tuple of 2"),
        (At("embedding", index=0), r"no item 0 in a Tensor"),
        (At("head", "input", index="x"), "no item 'x' in a dict with input"),
    ],
)
def test_a_place_without_a_tensor_says_what_is_there(module, place, words):
    with pytest.raises(InvalidInput, match=words):
        wrap(module, {"a": place}).run(TOKENS, ["a"])
    assert hooks(module) == 0


def test_a_place_of_no_known_form_is_refused(module):
    with pytest.raises(InvalidInput, match="the place of 'a' is a path"):
        wrap(module, {"a": 3})
    with pytest.raises(InvalidInput, match="the place of 'a' is a path"):
        wrap(module, {"a": ("rnn", "middle")})
    with pytest.raises(InvalidInput, match="side"):
        At("rnn", "middle")


def test_inputs_may_become_several_arguments(module):
    plain = wrap(module, PLACES, outputs=lambda result: result["logits"])
    for given in (
        lambda x: (torch.as_tensor(x), 2.0),
        lambda x: {"tokens": torch.as_tensor(x), "scale": 2.0},
    ):
        scaled = wrap(module, PLACES, inputs=given, outputs=lambda result: result["logits"])
        torch.testing.assert_close(scaled(TOKENS), 2 * plain(TOKENS))
        assert scaled.record(TOKENS, ["embed"])["embed"].shape == (2, 3, 4)


def test_gradients_and_weights_come_on_request(module, runner):
    trace = runner.record(
        TOKENS, ["final", "layers.0.residual_in"], gradients=lambda out: out.sum(), weights=True
    )
    expected = module.head.weight.detach().sum(dim=0).expand(2, 3, 4)
    torch.testing.assert_close(trace.gradients["final"], expected)
    assert trace.gradients["layers.0.residual_in"].abs().sum() > 0
    assert set(trace.weights) == {name for name, _ in module.named_parameters()}
    assert all(parameter.grad is None for parameter in module.parameters())
    assert runner.record(TOKENS, ["final"]).weights is None
