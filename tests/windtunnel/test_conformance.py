"""Every registered task passes the conformance suite; each rule catches planted defects."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from tests.windtunnel.toys import Coin, NormalMean

from beliefspace.core import registry
from beliefspace.core.distributions import Categorical, Normal
from beliefspace.core.errors import BeliefspaceError
from beliefspace.core.streams import Stream
from beliefspace.windtunnel import conformance
from beliefspace.windtunnel.conformance import ConformanceError, check_task, check_task_class
from beliefspace.windtunnel.tasks.base import TokenInputs
from beliefspace.windtunnel.tasks.bijection import Bijection

TASKS = [registry.resolve("tasks", name) for name in registry.names("tasks")]
TINY = [task for cls in TASKS for task in cls.tiny()]


@pytest.fixture(autouse=True)
def private_registry(monkeypatch):
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(registry, "_by_value", dict(registry._by_value))


def registered(cls):
    """A task must have a name, or it has no place in a config file."""
    return registry.register("tasks", "planted")(cls)


# ---------------------------------------------------------------- what is registered


def test_something_is_registered():
    assert Bijection in TASKS
    assert len(TINY) >= len(TASKS)


@pytest.mark.parametrize("task", TINY, ids=str)
@pytest.mark.parametrize("rule", conformance.RULES, ids=lambda rule: rule.__name__)
def test_every_registered_task_keeps_every_rule(task, rule):
    assert rule(task) == ""


def test_a_registered_class_passes_as_a_whole():
    check_task_class(Bijection)


@pytest.mark.parametrize("cls", [Coin, NormalMean], ids=lambda cls: cls.__name__)
def test_correct_tasks_from_outside_pass(cls):
    check_task_class(registered(cls))


def test_an_undamaged_copy_passes():
    """The plants below differ from this by their defect alone."""

    @registered
    @dataclass(frozen=True)
    class Copy(Bijection):
        pass

    check_task(Copy(4))


# ---------------------------------------------------------------- plants

PLANTS = []


def plant(rule, **settings):
    """Note a defective task, the rule that it breaks, and the settings to make it with."""

    def noted(cls):
        PLANTS.append(pytest.param(rule, cls, settings, id=f"{rule}-{cls.__name__}"))
        return cls

    return noted


def altered(change):
    """A method that draws the usual batch and changes it."""

    def batch(self, sequences, stream, step=0):
        return change(self, Bijection.batch(self, sequences, stream, step))

    return batch


def believing(change):
    """A method that draws the usual batch with other log-probabilities, given the right ones."""

    def changed(self, usual):
        def predictive():
            with np.errstate(divide="ignore"):
                return Categorical(change(self, usual), self.outputs.support)

        return replace(usual, _predictive=predictive)

    return altered(changed)


def mine(self, batch):
    """A reference that agrees with whatever the batch says, to isolate another defect."""
    return batch.predictive


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class ShortIntegers(Bijection):
    batch = altered(lambda self, b: replace(b, inputs=b.inputs.astype(np.int32)))


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class FloatInputs(Bijection):
    batch = altered(lambda self, b: replace(b, inputs=b.inputs.astype(np.float64)))


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class ShortTargets(Bijection):
    batch = altered(lambda self, b: replace(b, targets=b.targets.astype(np.int32)))


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class ScoredAsNumbers(Bijection):
    batch = altered(lambda self, b: replace(b, scored=b.scored.astype(np.int64)))


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class OneMaskForAll(Bijection):
    batch = altered(lambda self, b: replace(b, scored=b.scored[0]))


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class TokenOutOfVocabulary(Bijection):
    batch = altered(lambda self, b: replace(b, inputs=b.inputs + 1))


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class NegativeToken(Bijection):
    batch = altered(lambda self, b: replace(b, inputs=b.inputs - 1))


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class NarrowVocabulary(Bijection):
    @property
    def inputs(self):
        return TokenInputs(self.values)


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class OneTokenTooMany(Bijection):
    def batch(self, sequences, stream, step=0):
        usual = Bijection.batch(self, sequences, stream, step)
        return replace(
            usual,
            inputs=np.pad(usual.inputs, ((0, 0), (0, 1))),
            scored=np.pad(usual.scored, ((0, 0), (0, 1))),
            targets=np.pad(usual.targets, ((0, 0), (0, 1)), constant_values=-1),
        )


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class OtherSupport(Bijection):
    """The predictive names keys, where the outputs are said to be values."""

    batch = altered(
        lambda self, b: replace(
            b, _predictive=lambda: Categorical(b.predictive.log_probs, (0, 1, 2, 3))
        )
    )
    reference = mine


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class MissingRow(Bijection):
    batch = altered(lambda self, b: replace(b, _predictive=lambda: b.predictive.take(slice(0, -1))))


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class NormalForCategories(Bijection):
    batch = altered(
        lambda self, b: replace(
            b, _predictive=lambda: Normal(np.zeros(b.scored.sum()), np.ones(b.scored.sum()))
        )
    )


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class NothingScored(Bijection):
    batch = altered(
        lambda self, b: replace(
            b,
            scored=np.zeros_like(b.scored),
            targets=np.full_like(b.targets, -1),
            _predictive=lambda: b.predictive.take(slice(0, 0)),
        )
    )


@plant("laid_out_as_the_contract_says")
@dataclass(frozen=True)
class DoublePrecisionFeatures(NormalMean):
    def batch(self, sequences, stream, step=0):
        usual = NormalMean.batch(self, sequences, stream, step)
        return replace(usual, inputs=usual.inputs.astype(np.float64))


def with_targets(change):
    """Change the targets in a copy."""

    def changed(self, batch):
        targets = batch.targets.copy()
        change(targets, batch)
        return replace(batch, targets=targets)

    return altered(changed)


def _seen_value(targets, batch):
    targets[:, -1] = targets[:, 0]


def _on_every_position(targets, batch):
    targets[~batch.scored] = 0


def _past_the_support(targets, batch):
    targets[0, 0] = 4


def _missing(targets, batch):
    targets[0, 0] = -1


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class ImpossibleTarget(Bijection):
    batch = with_targets(_seen_value)


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class TargetWhereNothingIsAsked(Bijection):
    batch = with_targets(_on_every_position)


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class TargetPastTheSupport(Bijection):
    batch = with_targets(_past_the_support)


@plant("laid_out_as_the_contract_says", values=4)
@dataclass(frozen=True)
class MissingTarget(Bijection):
    batch = with_targets(_missing)


@plant("entropy_within_bounds", values=4)
@dataclass(frozen=True)
class NotNormalised(Bijection):
    """Of mass e: Categorical refuses it at birth, but a task might change it afterwards."""

    def batch(self, sequences, stream, step=0):
        usual = Bijection.batch(self, sequences, stream, step)
        object.__setattr__(usual.predictive, "log_probs", usual.predictive.log_probs + 1)
        return usual


def mixed(share):
    """The exact predictive with a share of the uniform one."""

    def change(self, batch):
        exact = np.exp(batch.predictive.log_probs)
        return np.log((1 - share) * exact + share / self.values)

    return believing(change)


def _stale(self, batch):
    rows = batch.predictive.log_probs.reshape(len(batch.inputs), -1, self.values).copy()
    rows[:, 1:] = rows[:, :-1].copy()
    return rows.reshape(-1, self.values)


def _swapped(self, batch):
    return batch.predictive.log_probs[:, ::-1].copy()


@plant("agrees_with_the_independent_derivation", values=4)
@dataclass(frozen=True)
class LeakyPosterior(Bijection):
    batch = mixed(0.01)


@plant("agrees_with_the_independent_derivation", values=4)
@dataclass(frozen=True)
class SlightlyLeakyPosterior(Bijection):
    batch = mixed(1e-7)


@plant("agrees_with_the_independent_derivation", values=4)
@dataclass(frozen=True)
class ClampedZeros(Bijection):
    batch = mixed(1e-30)


@plant("agrees_with_the_independent_derivation", values=4)
@dataclass(frozen=True)
class OneStepLate(Bijection):
    batch = believing(_stale)


@plant("agrees_with_the_independent_derivation", values=4)
@dataclass(frozen=True)
class OutcomesInTheWrongOrder(Bijection):
    batch = believing(_swapped)


@plant("agrees_with_the_independent_derivation")
@dataclass(frozen=True)
class OverconfidentNormal(NormalMean):
    def batch(self, sequences, stream, step=0):
        usual = NormalMean.batch(self, sequences, stream, step)
        exact = usual.predictive
        return replace(usual, _predictive=lambda: Normal(exact.mean, exact.variance * 0.99))


def _own_future(self, batch):
    return np.log(np.eye(self.values)[batch.outcomes])


def _end_at_the_start(self, batch):
    rows = np.exp(batch.predictive.log_probs).reshape(len(batch.inputs), -1, self.values)
    rows = rows.copy()
    last = np.eye(self.values)[batch.targets[:, -1]]
    rows[:, 0] = (1 - last) / (self.values - 1)
    return np.log(rows.reshape(-1, self.values))


@plant("same_past_same_belief", values=4)
@dataclass(frozen=True)
class KnowsTheAnswer(Bijection):
    batch = believing(_own_future)
    reference = mine


@plant("same_past_same_belief", values=4)
@dataclass(frozen=True)
class KnowsTheEndAtTheStart(Bijection):
    """A true conditional probability, but of the whole sequence."""

    batch = believing(_end_at_the_start)
    reference = mine


@plant("belief_is_a_distribution", values=4)
@dataclass(frozen=True)
class BeliefOfOtherRows(Bijection):
    batch = altered(lambda self, b: replace(b, _belief=lambda: b.belief.take(slice(1, None))))


@plant("belief_is_a_distribution", values=4)
@dataclass(frozen=True)
class BeliefOfMassE(Bijection):
    def batch(self, sequences, stream, step=0):
        usual = Bijection.batch(self, sequences, stream, step)
        object.__setattr__(usual.belief, "log_probs", usual.belief.log_probs + 1)
        return usual


def _batch_of(self, sequences, stream, step):
    return Bijection.batch(self, sequences, stream, step)


@plant("rows_do_not_depend_on_the_batch", values=5)
@dataclass(frozen=True)
class DependsOnTheSizeOfTheBatch(Bijection):
    def batch(self, sequences, stream, step=0):
        return _batch_of(self, sequences, stream, 1000 * step + sequences)


@plant("rows_do_not_depend_on_the_batch", values=5)
@dataclass(frozen=True)
class CountsFromTheEnd(Bijection):
    def batch(self, sequences, stream, step=0):
        usual = _batch_of(self, sequences, stream, step)
        per_row = int(usual.scored[0].sum())
        order = np.arange(sequences * per_row).reshape(sequences, per_row)[::-1].ravel()
        return replace(
            usual,
            inputs=usual.inputs[::-1].copy(),
            targets=usual.targets[::-1].copy(),
            latent=replace(
                usual.latent,
                table=usual.latent.table[::-1],
                keys=usual.latent.keys[::-1],
                queries=usual.latent.queries[::-1],
            ),
            _predictive=lambda: usual.predictive.take(order),
        )


@plant("rows_do_not_depend_on_the_batch", values=5)
@dataclass(frozen=True)
class SameEveryStep(Bijection):
    def batch(self, sequences, stream, step=0):
        return _batch_of(self, sequences, stream, 0)


@plant("rows_do_not_depend_on_the_batch", values=5)
@dataclass(frozen=True)
class SameForEverySeed(Bijection):
    def batch(self, sequences, stream, step=0):
        return _batch_of(self, sequences, Stream(0, stream.purpose), step)


@plant("rows_do_not_depend_on_the_batch", values=5)
@dataclass(frozen=True)
class SameForEveryPurpose(Bijection):
    def batch(self, sequences, stream, step=0):
        return _batch_of(self, sequences, Stream(stream.seed, "any"), step)


def _sure_of_the_first(self, batch):
    exact = np.exp(batch.predictive.log_probs) * [8.0, 1.0, 1.0, 1.0]
    return np.log(exact / exact.sum(axis=1, keepdims=True))


@plant("sampled_as_believed", values=4)
@dataclass(frozen=True)
class BelievesInTheFirstValue(Bijection):
    """A prior in which value 0 comes first more often than it is drawn."""

    batch = believing(_sure_of_the_first)
    reference = mine


@plant("sampled_as_believed", values=4)
@dataclass(frozen=True)
class DrawsOneLatentAndBelievesInAll(Bijection):
    """Every sequence shows the same mapping, while the posterior is that of the full prior."""

    def batch(self, sequences, stream, step=0):
        full = replace(self, pool=1)
        usual = Bijection.batch(full, sequences, stream, step)
        return replace(usual, _predictive=lambda: full.alternatives(usual)["full prior"])


@plant("exact_scores_zero_against_itself", values=4)
@dataclass(frozen=True)
class DamagedDivergence(Bijection):
    """A predictive that is at a distance from itself."""

    def batch(self, sequences, stream, step=0):
        usual = Bijection.batch(self, sequences, stream, step)

        class Restless(Categorical):
            def kl_bits(self, other):
                return np.full(self.rows, 0.1)

        exact = usual.predictive
        return replace(usual, _predictive=lambda: Restless(exact.log_probs, exact.support))


@plant("exact_scores_zero_against_itself", values=4)
@dataclass(frozen=True)
class RungOfAnotherLength(Bijection):
    def ladder(self, batch):
        return {"short": batch.predictive.take(slice(0, 1))}


@plant("latents_of_training_are_not_those_of_evaluation")
@dataclass(frozen=True)
class EvaluatesOnTrainingData(Bijection):
    """At 20 values: no enumeration could be its reference."""

    reference = mine

    def batch(self, sequences, stream, step=0):
        return _batch_of(self, sequences, Stream(stream.seed, "any"), step)


@plant("latents_of_training_are_not_those_of_evaluation")
@dataclass(frozen=True)
class OldLatentsInNewOrders(Bijection):
    """Its 61 bits of hypotheses are 4 mappings; only the order of the keys is new each time."""

    reference = mine

    def batch(self, sequences, stream, step=0):
        few = Bijection(self.values, pool=4)
        usual = few.batch(sequences, stream, step)
        return replace(usual, _predictive=lambda: few.alternatives(usual)["full prior"])


@plant("survives_a_config_file", values=4)
@dataclass(frozen=True)
class ChangesWhenRead(Bijection):
    def __post_init__(self):
        object.__setattr__(self, "pool_seed", self.pool_seed + 1)


@plant("survives_a_config_file", values=4)
@dataclass(frozen=True)
class HiddenSetting(Bijection):
    """A setting that the constructor does not take, and so is lost."""

    noise: float = field(default=0.0, init=False)

    def __post_init__(self):
        object.__setattr__(self, "noise", 0.0 if self.pool_seed else 0.5)
        object.__setattr__(self, "pool_seed", 1)


@plant("refuses_an_empty_batch", values=4)
@dataclass(frozen=True)
class EmptyBatches(Bijection):
    def batch(self, sequences, stream, step=0):
        usual = _batch_of(self, max(sequences, 1), stream, step)
        if sequences:
            return usual
        return replace(
            usual,
            inputs=usual.inputs[:0],
            scored=usual.scored[:0],
            targets=usual.targets[:0],
            _predictive=lambda: usual.predictive.take(slice(0, 0)),
        )


# ---------------------------------------------------------------- what they show


@pytest.mark.parametrize(("rule", "cls", "settings"), PLANTS)
def test_the_rule_catches_its_plant(rule, cls, settings):
    task = registered(cls)(**settings)
    try:
        problem = getattr(conformance, rule)(task)
    except BeliefspaceError as error:
        problem = str(error)
    assert isinstance(problem, str)
    assert problem.strip()


@pytest.mark.parametrize(("rule", "cls", "settings"), PLANTS)
def test_the_whole_check_refuses_the_plant(rule, cls, settings):
    with pytest.raises(ConformanceError) as refusal:
        check_task(registered(cls)(**settings))
    message = str(refusal.value)
    assert cls.__name__ in message
    assert any(r.__name__.replace("_", " ") in message for r in conformance.RULES)


def test_every_rule_has_a_plant():
    assert {p.values[0] for p in PLANTS} == {rule.__name__ for rule in conformance.RULES}


def test_the_message_says_which_task_which_rule_and_how():
    with pytest.raises(ConformanceError) as refusal:
        check_task(registered(EmptyBatches)(4))
    message = str(refusal.value)
    assert re.search(r"EmptyBatches\(values=4.*refuses an empty batch: \S", message)


def test_one_bad_tiny_instance_is_enough():
    @registered
    @dataclass(frozen=True)
    class GoodThenBad(LeakyPosterior):
        def batch(self, sequences, stream, step=0):
            cls = LeakyPosterior if self.format == "A" else Bijection
            return cls.batch(self, sequences, stream, step)

        @classmethod
        def tiny(cls):
            return (cls(4), cls(4, format="A"))

    check_task(GoodThenBad(4))
    with pytest.raises(ConformanceError, match="format='A'"):
        check_task_class(GoodThenBad)
