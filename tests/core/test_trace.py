"""Runners without torch's layers: names, edits, recording, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from beliefspace.core.errors import BeliefspaceError, InvalidInput, UnknownName
from beliefspace.core.taps import NO_TAP, Recorder, observe, scoped
from beliefspace.core.trace import (
    Point,
    Runner,
    RunnerMethods,
    Trace,
    points,
    resolve_edits,
    resolve_names,
)

torch = pytest.importorskip("torch")


class Doubling(torch.nn.Module, RunnerMethods):
    """x -> a = w x -> b = a + 1; the smallest runner with an order of points."""

    def __init__(self, skip: bool = False, twice: bool = False) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(2.0))
        self.skip = skip
        self.twice = twice

    def points(self):
        return (Point("part.a", "w x", "batch"), Point("part.b", "a + 1", "batch"))

    def forward(self, x, tap=NO_TAP):
        tap = scoped(tap, "part")
        x = tap("a", self.weight * x)
        if self.twice:
            x = tap("a", x)
        return x + 1 if self.skip else tap("b", x + 1)

    def run(self, inputs, names=(), edits=None, *, gradients=None, weights=False):
        known = [point.name for point in self.points()]
        forward = lambda tap: self(inputs, tap)  # noqa: E731
        seen = observe(self, forward, known, names, edits or {}, gradients)
        trace = Trace(
            seen.values,
            np.arange(1),
            np.full(len(inputs), 1),
            weights=dict(self.named_parameters()) if weights else None,
            gradients=seen.gradients,
        )
        return seen.outputs, trace


X = torch.tensor([1.0, 3.0])


def test_core_trace_imports_no_torch():
    code = (
        "import sys, beliefspace.core.trace, beliefspace.core.wrap; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_come_in_the_order_of_computation_whatever_was_asked_first():
    known = ["embed", "layers.0.keys", "layers.1.keys", "logits"]
    assert resolve_names(["logits", "layers.*.keys"], known) == [*known[1:]]
    assert resolve_names([], known) == []


def test_an_unknown_name_or_glob_names_the_nearest():
    with pytest.raises(UnknownName, match=r"'layers\.0\.keyz'.*nearest: layers\.0\.keys"):
        resolve_names(["layers.0.keyz"], ["layers.0.keys", "embed"])
    with pytest.raises(UnknownName, match="unknown point"):
        resolve_names(["layers.9.*"], ["layers.0.keys"])
    with pytest.raises(InvalidInput, match="given as a list"):
        resolve_names("embed", ["embed"])


def test_edits_on_one_name_act_in_the_order_given():
    edits = resolve_edits({"a*": lambda v: v + 1, "*": lambda v: v * 10}, ["a", "b"])
    assert edits["a"](2) == 30
    assert edits["b"](2) == 20
    with pytest.raises(InvalidInput, match="the edit of 'a' is a float"):
        resolve_edits({"a": 1.0}, ["a"])


def test_reading_changes_no_bit_and_records_what_was_asked():
    runner = Doubling()
    plain, nothing = runner.run(X)
    outputs, trace = runner.run(X, ["part.*"])
    assert torch.equal(plain, outputs)
    assert dict(nothing.values) == {}
    assert trace["part.a"].tolist() == [2.0, 6.0]
    assert trace["part.b"].tolist() == [3.0, 7.0]
    assert not trace["part.a"].requires_grad
    assert list(trace.match("*.b")) == ["part.b"]


def test_a_trace_knows_only_what_was_recorded():
    trace = Doubling().record(X, ["part.a"])
    with pytest.raises(UnknownName, match=r"recorded point 'part\.b'.*nearest: part\.a"):
        trace["part.b"]
    with pytest.raises(UnknownName):
        trace.match("*.b")


def test_nothing_asked_for_makes_no_recorder_and_builds_no_graph(monkeypatch):
    def refuse(*_):
        raise AssertionError("recorded though nothing was asked for")

    monkeypatch.setattr(Recorder, "__call__", refuse)
    taps = []
    runner = Doubling()
    forward = lambda tap: taps.append(tap) or runner(X, tap)  # noqa: E731
    outputs = observe(runner, forward, ["part.a", "part.b"]).outputs
    assert taps == [NO_TAP]
    assert outputs.grad_fn is None
    assert scoped(NO_TAP, "part") is NO_TAP


def test_edits_compose_and_leave_the_original_alone():
    runner = Doubling()
    once = runner.edit({"part.a": lambda v: v + 1})
    twice = once.edit({"part.*": lambda v: v * 10})
    # a: (2x + 1) * 10, b: (a + 1) * 10.
    assert once(X).tolist() == [4.0, 8.0]
    assert twice(X).tolist() == [310.0, 710.0]
    assert once(X).tolist() == [4.0, 8.0]
    assert runner.run(X)[0].tolist() == [3.0, 7.0]
    assert twice.record(X, ["part.a"])["part.a"].tolist() == [30.0, 70.0]
    # Edits of one run come after those of the runner.
    assert once.run(X, edits={"part.a": lambda v: v * 10})[0].tolist() == [31.0, 71.0]


def test_an_edit_may_work_in_place_without_reaching_what_shares_the_memory():
    recorder = Recorder(["before", "after"], {"after": torch.Tensor.zero_})
    value = recorder("before", X.clone())
    assert recorder("after", value).tolist() == [0.0, 0.0]
    assert recorder.values["before"].tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    ("edit", "got"),
    [
        (lambda v: v[:1], r"float32 of shape \(1,\)"),
        (lambda v: v.double(), r"float64 of shape \(2,\)"),
        (lambda v: None, "NoneType"),
    ],
)
def test_an_edit_that_changes_shape_or_kind_is_refused(edit, got):
    with pytest.raises(InvalidInput, match=f"edit of 'part.a'.*{got}"):
        Doubling().edit({"part.a": edit}).run(X)


def test_unknown_names_are_refused_before_anything_runs():
    runner = Doubling()
    with pytest.raises(UnknownName):
        runner.run(X, ["part.c"])
    with pytest.raises(UnknownName):
        runner.edit({"part.c": lambda v: v})


def test_a_point_listed_but_not_passed_is_named():
    with pytest.raises(BeliefspaceError, match=r"'part\.b' was asked for, but"):
        Doubling(skip=True).run(X, ["part.*"])
    with pytest.raises(BeliefspaceError, match=r"'part\.b' was asked for, but"):
        Doubling(skip=True).edit({"part.b": lambda v: v}).run(X)


def test_a_point_passed_twice_is_ambiguous():
    with pytest.raises(BeliefspaceError, match=r"'part\.a' came by twice"):
        Doubling(twice=True).run(X, ["part.a"])


def test_gradients_are_those_of_the_loss_by_the_recorded_values():
    runner = Doubling()
    trace = runner.record(X, ["part.*"], gradients=lambda out: (out**2).sum())
    # d(sum b²)/db = 2b = d/da.
    assert trace.gradients["part.a"].tolist() == [6.0, 14.0]
    assert trace.gradients["part.b"].tolist() == [6.0, 14.0]
    assert runner.weight.grad is None
    assert not trace["part.a"].requires_grad


def test_gradients_reach_values_that_no_parameter_feeds():
    runner = Doubling()
    runner.weight.requires_grad_(False)
    trace = runner.record(X, ["part.a"], gradients=lambda out: out.sum())
    assert trace.gradients["part.a"].tolist() == [1.0, 1.0]


def test_gradients_need_a_scalar_that_depends_on_the_outputs_and_names():
    runner = Doubling()
    with pytest.raises(InvalidInput, match="scalar"):
        runner.record(X, ["part.a"], gradients=lambda out: out)
    with pytest.raises(InvalidInput, match="scalar"):
        runner.record(X, ["part.a"], gradients=lambda out: torch.tensor(1.0))
    with pytest.raises(InvalidInput, match="no names"):
        runner.run(X, gradients=lambda out: out.sum())


def test_each_part_is_put_back_into_the_mode_it_was_in():
    runner = Doubling()
    runner.inner = torch.nn.Dropout()
    runner.inner.eval()
    runner.run(X)
    assert runner.training
    assert not runner.inner.training
    with pytest.raises(InvalidInput):
        runner.run(X, edits={"part.a": lambda v: v[:1]})
    assert runner.training


def test_points_are_listed_and_a_plain_callable_is_told_to_wrap():
    runner = Doubling()
    assert [point.name for point in points(runner)] == ["part.a", "part.b"]
    assert points(runner.edit({"part.a": lambda v: v})) == runner.points()
    assert isinstance(runner.edit({}), Runner)
    with pytest.raises(InvalidInput, match="has no points; wrap"):
        points(lambda x: x)


def test_a_scoped_tap_puts_its_place_before_the_name():
    recorder = Recorder(["layers.3.keys"])
    tap = scoped(scoped(recorder, "layers"), "3")
    assert tap.wants("keys")
    assert not tap.wants("values")
    tap("keys", X)
    assert list(recorder.values) == ["layers.3.keys"]


def test_a_trace_lists_its_points_with_their_shapes():
    values = {"embed": torch.zeros(2, 3), "logits": torch.zeros(2, 4)}
    trace = Trace(values, np.arange(3), np.full(2, 3))
    assert list(trace) == ["embed", "logits"]
    assert "embed" in trace
    assert "other" not in trace
    assert repr(trace) == "Trace of 2 points\n  embed [2, 3]\n  logits [2, 4]"
