"""Every model can be given the parameters of another, within 2 %, or says how near it comes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest

from beliefspace.core import registry
from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.models.base import ModelSpec, Sized
from beliefspace.windtunnel.models.match import matched, resolved
from beliefspace.windtunnel.models.mlp import MLP
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.tasks.bijection import Bijection
from beliefspace.windtunnel.tasks.hmm import HMM
from beliefspace.windtunnel.tasks.linear_regression import LinearRegression

TASKS = (Bijection(20), HMM(), LinearRegression())
REFERENCES = (Transformer(width=64, depth=2), Transformer(width=192, depth=6))


def scalable(cls):
    """Whether a model's size is a setting; hand-set ones have the size of their task."""
    return "width" in {setting.name for setting in fields(cls)}


CLASSES = [registry.resolve("models", name) for name in registry.names("models")]
SCALABLE = [cls for cls in CLASSES if scalable(cls)]
HAND_SET = [cls for cls in CLASSES if not scalable(cls)]


@dataclass(frozen=True)
class Steps(ModelSpec):
    """A model with as many parameters at each width as a table says; no others are accepted."""

    counts: tuple[tuple[int, int], ...]
    width: int = 1

    def __post_init__(self):
        if self.width not in dict(self.counts):
            raise InvalidInput(f"no width {self.width}")

    def build(self, task, stream):
        raise NotImplementedError

    def parameters(self, task):
        return dict(self.counts)[self.width]

    def operations(self, task):
        raise NotImplementedError


def steps(**counts):
    table = {int(name.removeprefix("w")): count for name, count in counts.items()}
    # At the next width the search is over.
    return Steps((*table.items(), (max(table) + 1, 10**9)), min(table))


def of(count):
    """A reference with so many parameters."""
    return steps(w1=count)


@pytest.mark.parametrize("cls", SCALABLE, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_every_model_that_has_a_width_comes_within_two_per_cent(cls, task):
    for reference in REFERENCES:
        spec = cls()
        found = matched(spec, reference, task)
        assert abs(found.parameters(task) / reference.parameters(task) - 1) <= 0.02
        assert found == replace(spec, width=found.width)


@pytest.mark.parametrize("cls", HAND_SET, ids=lambda cls: cls.__name__)
def test_a_model_without_a_width_is_refused(cls):
    with pytest.raises(InvalidInput, match=f"{cls.__name__} has no setting width"):
        matched(cls(), REFERENCES[0], TASKS[0])


def test_there_are_models_of_both_kinds():
    assert {Transformer, MLP} <= set(SCALABLE)


def test_the_count_is_that_of_the_built_network():
    pytest.importorskip("torch")
    task = TASKS[1]
    found = matched(MLP(), REFERENCES[0], task)
    built = sum(p.numel() for p in found.build(task, Stream(0, "initial")).parameters())
    assert abs(built / REFERENCES[0].parameters(task) - 1) <= 0.02


def test_a_model_matches_itself():
    for spec in REFERENCES:
        assert matched(replace(spec, width=6 * 7), spec, TASKS[0]) == spec


def test_of_widths_that_fit_the_one_of_the_highest_power_of_two_is_taken():
    spec = steps(w10=980, w11=1000, w12=1015, w14=1020, w16=1021)
    assert matched(spec, of(1000), TASKS[0]).width == 12
    assert matched(spec, of(1000), TASKS[0], tolerance=0.021).width == 16
    assert matched(spec, of(1000), TASKS[0], tolerance=0.0).width == 11


def test_among_equals_the_nearest_in_count_is_taken():
    assert matched(steps(w2=985, w6=1010, w10=1015), of(1000), TASKS[0]).width == 6


def test_a_default_number_of_heads_comes_out_sensible():
    """At a prime width a transformer would have one head."""
    found = matched(Transformer(depth=2), MLP.published(), TASKS[0])
    assert found.width % 8 == 0
    assert found.head_width <= 48


def test_only_widths_that_the_model_accepts_are_tried():
    """Six heads of an even width: multiples of 12, though 241 is nearer."""
    spec = Transformer(width=60, heads=6, positions="rotary")
    found = matched(spec, Transformer(width=241, heads=1, positions="none"), TASKS[0])
    assert found == replace(spec, width=240)


@pytest.mark.parametrize(
    ("spec", "reference", "words"),
    [
        (steps(w1=900, w2=1100), of(1010), "within 2.0% of the 1,010 .*nearest: 1,100 at width 2"),
        (steps(w1=900, w2=1100), of(990), "nearest: 900 at width 1"),
        (steps(w1=50, w2=60), of(1), "the 1 parameters of Steps; nearest: 50 at width 1"),
        (MLP(depth=1, feed_forward=0), of(7), "gives MLP within 2.0% of the 7 parameters of Steps"),
    ],
)
def test_where_no_width_fits_the_nearest_count_is_named(spec, reference, words):
    with pytest.raises(InvalidInput, match=words):
        matched(spec, reference, TASKS[0])


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), float("inf"), True])
def test_a_tolerance_that_is_none_is_refused(tolerance):
    with pytest.raises(InvalidInput, match="tolerance is a finite number"):
        matched(MLP(), REFERENCES[0], TASKS[0], tolerance)


def test_what_does_not_suit_the_task_is_said_and_not_searched_around():
    with pytest.raises(InvalidInput, match="needs a task with a header of vectors"):
        matched(MLP(side="inject"), REFERENCES[0], TASKS[0])


# ---------------------------------------------------------------- a width still to be chosen

TO_MATCH = [cls for cls in SCALABLE if issubclass(cls, Sized)]


@pytest.mark.parametrize("cls", TO_MATCH, ids=lambda cls: cls.__name__)
def test_a_model_to_match_another_is_not_counted_or_built_before_its_width_is_chosen(cls):
    spec, task = cls(match="transformer"), TASKS[0]
    uses = (lambda task: spec.build(task, Stream(0, "initial")), spec.parameters, spec.operations)
    for use in uses:
        with pytest.raises(InvalidInput, match=r"match transformer: .*models\.match\.resolved"):
            use(task)
    chosen = resolved(spec, task)
    assert chosen == replace(cls(), width=chosen.width)
    assert abs(chosen.parameters(task) / Transformer().parameters(task) - 1) <= 0.02


@pytest.mark.parametrize("cls", TO_MATCH, ids=lambda cls: cls.__name__)
def test_a_width_beside_match_is_refused(cls):
    with pytest.raises(InvalidInput, match=f"width of {cls.__name__} is to follow .*got width 32"):
        cls(width=32, match="transformer")


def test_a_model_or_reference_without_a_width_yet_is_no_part_of_a_search():
    for pair in ((MLP(match="transformer"), Transformer()), (MLP(), MLP(match="transformer"))):
        with pytest.raises(InvalidInput, match="still to be chosen"):
            matched(*pair, TASKS[0])
