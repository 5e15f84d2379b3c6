"""Boolean functions against a count over all of them, and against look-up and closed forms."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import FrozenInstanceError
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.ladder import ladder
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, TokenInputs
from beliefspace.windtunnel.tasks.boolean import BooleanFunction

STREAM = Stream(11, "oracle")
RARE = 1e-4
"""Seeds are fixed: a p-value below this is a wrong distribution, not bad luck."""


def read(task, row):
    """The examples of a row as the text says them: bits, then the output (None at the end)."""
    text = "".join(map(str, row.tolist()))
    parts = [text[i : i + task.bits + 1] for i in range(0, len(text), task.bits + 1)]
    return [(part[: task.bits], {"2": 0, "3": 1}.get(part[task.bits :])) for part in parts]


def functions(bits, relevant):
    """Every (subset, function) pair: a dictionary from the text of an input to the output."""
    points = ["".join(p) for p in product("01", repeat=bits)]
    for subset in combinations(range(bits), relevant):
        keys = sorted({"".join(point[i] for i in subset) for point in points})
        for values in product((0, 1), repeat=len(keys)):
            table = dict(zip(keys, values, strict=True))
            yield subset, {x: table["".join(x[i] for i in subset)] for x in points}


def bayes(task, row):
    """Count the functions that agree: the outputs 0 and 1, and the subsets, at each query."""
    left = list(functions(task.bits, task.relevant or task.bits))
    subsets = list(combinations(range(task.bits), task.relevant or task.bits))
    outputs, owners = [], []
    for point, output in read(task, row):
        outputs.append([sum(f[point] == y for _, f in left) / len(left) for y in (0, 1)])
        owners.append([sum(s == subset for s, _ in left) / len(left) for subset in subsets])
        left = [(s, f) for s, f in left if f[point] == output]
    return outputs, owners


def assert_beliefs(categorical, expected):
    """Equal to rounding, and impossible exactly where it is impossible."""
    expected = np.array(expected)
    assert categorical.log_probs.dtype == np.float64
    np.testing.assert_allclose(np.exp(categorical.log_probs), expected, rtol=1e-12, atol=0)
    np.testing.assert_array_equal(np.isneginf(categorical.log_probs), expected == 0)


def even_counts(values, categories):
    """The p-value of all categories being equally likely."""
    counts = Counter(values)
    assert set(counts) <= set(categories)
    return chisquare([counts[c] for c in categories]).pvalue


# ---------------------------------------------------------------- layout


def test_examples_are_bits_and_an_output_and_the_last_ends_at_a_bit():
    task = BooleanFunction()
    batch = task.batch(50, STREAM)
    assert task.length == 95
    assert task.inputs == TokenInputs(4)
    assert task.outputs == CategoricalOutputs((2, 3))
    assert batch.inputs.shape == batch.scored.shape == batch.targets.shape == (50, 95)
    place = np.arange(95) % 6
    assert set(batch.inputs[:, place < 5].ravel()) == {0, 1}
    assert set(batch.inputs[:, place == 5].ravel()) == {2, 3}
    np.testing.assert_array_equal(batch.scored, np.tile(place == 4, (50, 1)))
    np.testing.assert_array_equal(
        batch.targets[:, place == 4][:, :-1] + 2, batch.inputs[:, place == 5]
    )
    assert (batch.targets[:, place != 4] == -1).all()


def test_latent_is_the_function_that_the_tokens_show():
    task = BooleanFunction(bits=4, examples=12, relevant=2)
    batch = task.batch(40, STREAM)
    latent = batch.latent
    assert latent.table.shape == (40, 16)
    assert latent.subset.shape == (40, 2)
    for row, table, subset in zip(batch.inputs, latent.table, latent.subset, strict=True):
        for point, output in read(task, row):
            assert output in (None, table[int(point, 2)])
        by_cell = {}
        for number in range(16):
            text = f"{number:04b}"
            by_cell.setdefault(tuple(text[i] for i in subset), set()).add(table[number])
        assert all(len(values) == 1 for values in by_cell.values()), "no other bit matters"
    np.testing.assert_array_equal(batch.outcomes, latent.shown.ravel())


# ---------------------------------------------------------------- drawing


def test_functions_and_examples_are_uniform():
    latent = BooleanFunction(bits=2, examples=2).batch(20_000, STREAM).latent
    assert even_counts(map(tuple, latent.table.tolist()), list(product((0, 1), repeat=4))) > RARE
    assert (
        even_counts(map(tuple, latent.examples.tolist()), list(product(range(4), repeat=2))) > RARE
    )


def test_subsets_are_uniform_and_distinct_examples_never_come_again():
    latent = BooleanFunction(4, 16, "distinct", 2).batch(6000, STREAM).latent
    assert even_counts(map(tuple, latent.subset.tolist()), list(combinations(range(4), 2))) > RARE
    np.testing.assert_array_equal(np.sort(latent.examples), np.tile(np.arange(16), (6000, 1)))
    assert even_counts(latent.examples[:, 0].tolist(), range(16)) > RARE


def test_rows_depend_on_seed_purpose_step_and_row_alone():
    task = BooleanFunction(relevant=2)
    many, few = task.batch(200, STREAM, 4), task.batch(3, STREAM, 4)
    np.testing.assert_array_equal(many.inputs[:3], few.inputs)
    np.testing.assert_array_equal(many.predictive.log_probs[:48], few.predictive.log_probs)
    for stream, step in [(STREAM, 5), (Stream(12, "oracle"), 4), (Stream(11, "other"), 4)]:
        assert (task.batch(3, stream, step).inputs != few.inputs).any(axis=1).all()


# ---------------------------------------------------------------- beliefs


@st.composite
def tasks(draw):
    bits = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["repeated", "distinct"]))
    examples = draw(st.integers(1, 2**bits if kind == "distinct" else 10))
    return BooleanFunction(bits, examples, kind, draw(st.none() | st.integers(1, bits)))


@settings(max_examples=60)
@given(task=tasks(), seed=st.integers(0, 2**40), n=st.integers(1, 4))
def test_any_task_follows_the_count_over_all_functions(task, seed, n):
    batch = task.batch(n, Stream(seed, "property"))
    outputs, owners = [], []
    for row in batch.inputs:
        here = bayes(task, row)
        outputs += here[0]
        owners += here[1]
    assert_beliefs(batch.predictive, outputs)
    assert_beliefs(task.reference(batch), outputs)
    assert_beliefs(batch.belief, outputs if task.depends_on == task.bits else owners)


def test_of_all_functions_an_input_is_known_or_a_coin():
    task = BooleanFunction(bits=5, examples=40)
    batch = task.batch(60, STREAM)
    expected = []
    for row in batch.inputs:
        seen = {}
        for point, output in read(task, row):
            known = seen.get(point)
            expected.append([0.5, 0.5] if known is None else [1 - known, known])
            seen[point] = output
    np.testing.assert_array_equal(np.exp(batch.predictive.log_probs), expected)


def test_mean_entropy_of_a_random_input_falls_by_one_part_in_32_with_each_distinct_example():
    """BFI-5 (2512.22471): 1 - k / 32 bits after k distinct examples."""
    batch = BooleanFunction(bits=5, examples=40).batch(4000, STREAM)
    entropy = batch.predictive.entropy_bits().reshape(4000, 40)
    examples = batch.latent.examples
    distinct = [[len(set(row[:i])) for i in range(40)] for row in examples.tolist()]
    for k in range(26):
        here = entropy[np.array(distinct) == k]
        error = math.sqrt(k / 32 * (1 - k / 32) / len(here))
        assert here.mean() == pytest.approx(1 - k / 32, abs=4.5 * error + 1e-12)


def test_distinct_examples_of_all_functions_tell_nothing():
    batch = BooleanFunction(bits=5, examples=32, draws="distinct").batch(20, STREAM)
    np.testing.assert_array_equal(np.exp(batch.predictive.log_probs), 0.5)


def test_all_bits_relevant_is_the_same_as_none_said():
    some, none = BooleanFunction(3, 9, relevant=3), BooleanFunction(3, 9)
    one, other = some.batch(30, STREAM), none.batch(30, STREAM)
    np.testing.assert_array_equal(one.inputs, other.inputs)
    np.testing.assert_array_equal(one.predictive.log_probs, other.predictive.log_probs)
    np.testing.assert_array_equal(one.belief.log_probs, other.belief.log_probs)
    assert some.prior == none.prior == "uniform over all functions of 3 bits"
    assert some.primitives == none.primitives
    assert some.hypothesis_bits == none.hypothesis_bits


def test_all_inputs_shown_tell_the_subset_unless_a_smaller_one_will_do():
    """After all but the last of the inputs the drawn subset is possible and never the less likely.

    The output depends on both bits of the subset for 10 tables in 16; one bit of the two alone, or
    none, leaves 3 or all 6 subsets.
    """
    task = BooleanFunction(4, 16, "distinct", 2)
    batch = task.batch(4000, STREAM)
    last = np.exp(batch.belief.log_probs).reshape(4000, 16, 6)[:, -1]
    left = Counter((last > 0).sum(axis=1).tolist())
    assert set(left) <= {1, 2, 3, 4, 5, 6}
    assert left[1] / 4000 == pytest.approx(10 / 16, abs=0.05)
    subsets = list(combinations(range(4), 2))
    drawn = [subsets.index(tuple(subset)) for subset in batch.latent.subset.tolist()]
    assert (last[np.arange(4000), drawn] > 0).all()


def test_ten_bits_stay_in_the_range_of_floats():
    task = BooleanFunction(10, 1024, "distinct", 9)
    batch = task.batch(2, STREAM)
    assert np.isfinite(batch.predictive.surprisal_bits(batch.outcomes)).all()
    assert (batch.predictive.entropy_bits().reshape(2, 1024)[:, -300:].mean(axis=1) < 0.2).all()


def test_hypotheses_in_bits():
    assert BooleanFunction().hypothesis_bits == 32
    assert BooleanFunction(relevant=2).hypothesis_bits == pytest.approx(math.log2(10) + 4)
    assert BooleanFunction(bits=1, relevant=1).hypothesis_bits == 2


def test_prior_and_primitives_say_what_is_drawn_and_needed():
    assert BooleanFunction().primitives == ("binding",)
    assert BooleanFunction(relevant=5).primitives == ("binding",)
    assert BooleanFunction(relevant=2).primitives == ("accumulation", "binding")
    assert BooleanFunction().prior == "uniform over all functions of 5 bits"
    assert BooleanFunction(relevant=2).prior == "uniform over all functions of 2 out of 5 bits"


# ---------------------------------------------------------------- ladder


def test_majority_so_far_is_the_rule_of_succession():
    task = BooleanFunction(bits=3, examples=7, relevant=1)
    batch = task.batch(20, STREAM)
    expected = []
    for row in batch.inputs:
        outputs = [output for _, output in read(task, row)]
        for place in range(7):
            ones = 1 + sum(outputs[:place])
            expected.append([(place + 2 - ones) / (place + 2), ones / (place + 2)])
    assert list(task.ladder(batch)) == ["majority so far", "look-up"]
    assert_beliefs(task.ladder(batch)["majority so far"], expected)


def test_of_all_bits_the_rungs_recall_the_last_examples_alone():
    task = BooleanFunction(bits=3, examples=11)
    batch = task.batch(300, STREAM)
    rungs = task.ladder(batch)
    assert list(rungs) == [f"look-up in the last {reach}" for reach in (2, 4, 8)]
    errors = [batch.predictive.kl_bits(rung).mean() for rung in rungs.values()]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] > 0
    expected = []
    for row in batch.inputs:
        points = [point for point, _ in read(task, row)]
        for i, point in enumerate(points):
            # Where the input came before, it costs a bit not to know it.
            expected.append(float(point in points[:i] and point not in points[max(0, i - 4) : i]))
    lost = batch.predictive.kl_bits(rungs["look-up in the last 4"])
    np.testing.assert_allclose(lost, expected, atol=1e-12)


def test_look_up_is_a_rung_where_some_bits_do_not_matter():
    task = BooleanFunction(relevant=2)
    batch = task.batch(800, STREAM)
    rungs = ladder(task, batch)
    assert list(rungs)[-2:] == ["majority so far", "look-up"]
    kl = {name: batch.predictive.kl_bits(rung).mean() for name, rung in rungs.items()}
    assert kl["uniform"] > kl["majority so far"] > kl["look-up"] > 0.1
    known = []
    for row in batch.inputs:
        points = [point for point, _ in read(task, row)]
        known += [point in points[:i] for i, point in enumerate(points)]
    np.testing.assert_array_equal(rungs["look-up"].entropy_bits(), 1.0 - np.array(known))


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "given",
    [
        {"bits": 0},
        {"bits": 11},
        {"bits": True},
        {"bits": "5"},
        {"bits": 2.0},
        {"examples": 0},
        {"examples": 1.5},
        {"examples": 33, "draws": "distinct"},
        {"draws": "unique"},
        {"draws": None},
        {"relevant": 0},
        {"relevant": 6},
        {"relevant": True},
        {"relevant": 2.0},
    ],
    ids=str,
)
def test_bad_settings_are_refused(given):
    with pytest.raises(InvalidInput, match=next(iter(given))) as refusal:
        BooleanFunction(**given)
    assert "\n" not in str(refusal.value)


def test_a_refusal_says_what_was_given_and_what_would_work():
    with pytest.raises(InvalidInput, match=r"32 distinct.*33.*repeated"):
        BooleanFunction(examples=33, draws="distinct")


@pytest.mark.parametrize("sequences", [0, -1, 2.5, "3", True, None])
def test_number_of_sequences_is_checked(sequences):
    with pytest.raises(InvalidInput):
        BooleanFunction().batch(sequences, STREAM)


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(FrozenInstanceError):
        BooleanFunction().bits = 3
