"""Scores against values worked out by hand and predictors whose errors are known."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.windtunnel.toys import Coin, NormalMean

from beliefspace.core.distributions import Categorical, Normal
from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import evaluation_batch, evaluation_hash, measure, score
from beliefspace.windtunnel.tasks.base import Batch
from beliefspace.windtunnel.tasks.bijection import Bijection
from beliefspace.windtunnel.tasks.hmm import HMM

LOG3 = math.log2(3)


def logs(rows):
    with np.errstate(divide="ignore"):
        return np.log(np.array(rows, dtype=np.float64))


def binary(p):
    """Entropy of a coin, bits."""
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p)


def by_hand(scored, targets, exact, support=(2, 3)):
    """A batch over 4 tokens whose outcomes are the tokens 2 and 3."""
    scored = np.array(scored, dtype=bool)
    inputs = np.zeros(scored.shape, dtype=np.int64)
    targets = np.array(targets, dtype=np.int64)
    return Batch(inputs, scored, targets, None, lambda: Categorical(logs(exact), support))


def bayes(values, shift=0):
    """An elimination predictor for format B that reads the tokens and nothing else.

    With a shift it names other values than those left, just as many of them.
    """

    def predictor(inputs):
        out = np.full((*inputs.shape, values), -np.inf)
        for i, row in enumerate(inputs):
            for t in range(inputs.shape[1]):
                gone = row[1 : t + 1 : 2] - values
                left = np.setdiff1d(np.arange(values), gone)
                out[i, t, (left + shift) % values] = 0
        return out

    return predictor


def flat(values):
    return lambda inputs: np.zeros((*inputs.shape, values))


# ---------------------------------------------------------------- by hand

HAND = by_hand(
    [[1, 0, 1], [1, 0, 1]],
    [[0, -1, 0], [0, -1, 1]],
    [[0.5, 0.5], [1, 0], [0.5, 0.5], [0, 1]],
)
BELIEVED = Categorical(
    logs([[1 / 4, 3 / 4], [5 / 8, 3 / 8], [3 / 4, 1 / 4], [1 / 8, 7 / 8]]), (2, 3)
)


def test_every_quantity_by_hand():
    """Two sequences scored at tokens 0 and 2; one is sure at the end, of either value."""
    m = measure(BELIEVED, HAND)
    kl = [1 - LOG3 / 2, (math.log2(8 / 5) + math.log2(8 / 7)) / 2]
    assert m.kl_bits.by_position == pytest.approx(kl, rel=1e-12)
    assert m.kl_bits.mean == pytest.approx(np.mean(kl), rel=1e-12)
    assert m.kl_bits.worst == pytest.approx(max(kl), rel=1e-12)
    assert m.kl_bits.worst_position == 2
    entropy = [1 - binary(1 / 4), (binary(3 / 8) + binary(1 / 8)) / 2]
    assert m.entropy_error_bits.by_position == pytest.approx(entropy, rel=1e-12)
    assert m.total_variation.by_position == pytest.approx([1 / 4, (3 / 8 + 1 / 8) / 2], rel=1e-12)
    excess = [(2 - 1 + math.log2(4 / 3) - 1) / 2, (math.log2(8 / 5) + math.log2(8 / 7)) / 2]
    assert m.excess_cross_entropy_bits.by_position == pytest.approx(excess, rel=1e-12)
    own = [binary(1 / 4), (binary(3 / 8) + binary(1 / 8)) / 2]
    assert m.entropy_bits.by_position == pytest.approx(own, rel=1e-12)
    # Likeliest outcomes are 1, 0, 0, 1; sampled were 0, 0, 0, 1.
    assert m.accuracy.by_position == (0.5, 1.0)
    assert m.leaked_inside.by_position == pytest.approx([0, (3 / 8 + 1 / 8) / 2], abs=1e-15)
    assert m.leaked_outside is None or m.leaked_outside.mean == 0


def test_worst_position_is_a_token_and_not_a_count():
    batch = by_hand(
        [[0, 1, 0, 1, 1], [0, 1, 0, 1, 1]],
        [[-1, 0, -1, 0, 1], [-1, 1, -1, 0, 0]],
        [[0.5, 0.5]] * 6,
    )
    p = [0.4, 0.1, 0.3, 0.4, 0.1, 0.3]
    m = measure(Categorical(logs([[x, 1 - x] for x in p]), (2, 3)), batch)
    at = {x: -1 - (math.log2(x) + math.log2(1 - x)) / 2 for x in (0.4, 0.1, 0.3)}
    assert m.kl_bits.by_position == pytest.approx([at[0.4], at[0.1], at[0.3]], rel=1e-12)
    assert m.kl_bits.worst == pytest.approx(at[0.1], rel=1e-12)
    assert m.kl_bits.worst_position == 3


def test_sequences_need_not_be_scored_alike():
    batch = by_hand([[1, 0, 1], [0, 0, 1]], [[0, -1, 0], [-1, -1, 1]], [[0.5, 0.5]] * 3)
    m = measure(Categorical(logs([[0.25, 0.75], [0.5, 0.5], [0.125, 0.875]]), (2, 3)), batch)
    first = 1 - LOG3 / 2
    last = -1 - (math.log2(1 / 8) + math.log2(7 / 8)) / 2
    assert m.kl_bits.by_position == pytest.approx([first, last / 2], rel=1e-12)
    assert m.kl_bits.worst_position == (0 if first > last / 2 else 2)


def test_one_infinite_divergence():
    believed = BELIEVED.log_probs.copy()
    believed[3] = [0, -np.inf]
    m = measure(Categorical(believed, (2, 3)), HAND)
    assert m.kl_bits.mean == m.kl_bits.worst == math.inf
    assert m.kl_bits.worst_position == 2
    assert m.kl_bits.by_position == pytest.approx([1 - LOG3 / 2, math.inf])
    assert m.kl_bits.interval is None
    assert m.excess_cross_entropy_bits.mean == math.inf
    assert m.total_variation.by_position == pytest.approx([1 / 4, (3 / 8 + 1) / 2])
    assert m.leaked_inside.by_position == pytest.approx([0, (3 / 8 + 1) / 2])


def test_mass_outside_the_support_by_hand():
    """Over 4 tokens: a tenth of the mass lies on tokens 0 and 1, which are no outcomes."""
    inside = np.exp(BELIEVED.log_probs) * 0.9
    believed = logs(np.hstack([np.full((4, 1), 0.1), np.zeros((4, 1)), inside]))
    m = measure(Categorical(believed, (0, 1, 2, 3)), HAND)
    assert m.leaked_outside.by_position == pytest.approx([0.1, 0.1], rel=1e-12)
    assert m.leaked_inside.by_position == pytest.approx([0, 0.9 * (3 / 8 + 1 / 8) / 2], abs=1e-15)
    lost = -math.log2(0.9)
    kl = [1 - LOG3 / 2 + lost, (math.log2(8 / 5) + math.log2(8 / 7)) / 2 + lost]
    assert m.kl_bits.by_position == pytest.approx(kl, rel=1e-12)
    # At token 0: |.5 - .225| + |.5 - .675| + .1, halved; at token 2 all but the sure outcome.
    late = (1 - 0.9 * 5 / 8 + 1 - 0.9 * 7 / 8) / 2
    assert m.total_variation.by_position == pytest.approx([0.275, late], rel=1e-12)
    own = [binary(0.1) + 0.9 * binary(1 / 4), binary(0.1) + 0.45 * (binary(3 / 8) + binary(1 / 8))]
    assert m.entropy_bits.by_position == pytest.approx(own, rel=1e-12)
    assert m.accuracy.by_position == (0.5, 1.0)


def test_exact_scores_zero():
    m = measure(HAND.predictive, HAND)
    for measured in (
        m.kl_bits,
        m.entropy_error_bits,
        m.total_variation,
        m.excess_cross_entropy_bits,
    ):
        assert measured.mean == measured.worst == 0
    assert m.leaked_inside.mean == 0
    batch = Bijection(4).batch(20, Stream(0, "exact"))
    interval = measure(batch.predictive, batch).kl_bits.interval
    assert (interval.low, interval.high) == (0, 0)


def test_normal_by_hand():
    """KL of N(0, 1) to N(1, 4) is (ln 4 + 2/4 - 1) / 2 nats; entropies differ by 1 bit."""
    one = np.ones((2, 1), dtype=bool)
    targets = np.array([[0.0], [1.0]])
    batch = Batch(
        np.zeros((2, 1, 1), dtype=np.float32),
        one,
        targets,
        None,
        lambda: Normal(np.zeros(2), np.ones(2)),
    )
    m = measure(Normal(np.ones(2), np.full(2, 4.0)), batch)
    assert m.kl_bits.mean == pytest.approx((math.log(4) - 0.5) / 2 / math.log(2), rel=1e-12)
    assert m.entropy_error_bits.mean == pytest.approx(1, rel=1e-12)
    # -ln density: 1/8 against 0 at target 0, 0 against 1/2 at target 1, and ln 2 for the width.
    excess = math.log(2) + (1 / 8 - 0 + 0 - 1 / 2) / 2
    assert m.excess_cross_entropy_bits.mean == pytest.approx(excess / math.log(2), rel=1e-12)
    assert m.accuracy is None
    assert m.leaked_inside is None


# ---------------------------------------------------------------- traps


def test_errors_do_not_cancel_across_sequences():
    """The released evaluation averages entropies first: half too sure, half too unsure give 0."""
    exact = [[0.5, 0.5, 0, 0]] * 6
    batch = replace(
        by_hand([[1]] * 6, [[0]] * 6, exact, support=(0, 1, 2, 3)),
        inputs=np.zeros((6, 1), dtype=np.int64),
    )
    sure, unsure = [1 - 1e-300, 1e-300, 0, 0], [0.25] * 4
    m = measure(Categorical(logs([sure, unsure] * 3)), batch)
    cancelling = abs(np.mean(m.entropy_bits.by_position) - 1)
    assert cancelling == pytest.approx(0, abs=1e-12)
    assert m.entropy_error_bits.mean == pytest.approx(1, rel=1e-12)


def test_permuted_posterior_has_the_entropy_and_not_the_belief():
    """As many values are left, but not the right ones."""
    task = Bijection(8)
    s = score(bayes(8, shift=1), task, sequences=64)
    assert s.entropy_error_bits.mean == pytest.approx(0, abs=1e-12)
    assert s.kl_bits.mean == math.inf
    assert s.kl_bits.interval is None
    assert s.total_variation.mean > 0.2
    assert s.leaked_inside.mean > 0.2
    assert s.kl_bits.by_position[0] == 0, "before any pair there is nothing to permute"


def test_soft_permuted_posterior_has_finite_divergence():
    task = Bijection(8)
    soft = score(lambda x: np.maximum(bayes(8)(x), -10), task, sequences=64)
    wrong = score(lambda x: np.maximum(bayes(8, shift=1)(x), -10), task, sequences=64)
    assert wrong.entropy_error_bits.mean == pytest.approx(soft.entropy_error_bits.mean, rel=1e-9)
    assert soft.kl_bits.mean < 1e-3
    assert wrong.kl_bits.mean > 1


# ---------------------------------------------------------------- score


def test_exact_predictor_is_exact():
    s = score(bayes(7), Bijection(7), sequences=600)
    assert s.kl_bits.mean == pytest.approx(0, abs=1e-13)
    assert s.total_variation.mean == pytest.approx(0, abs=1e-13)
    assert s.leaked_inside.mean == 0
    assert s.positions == tuple(range(0, 13, 2))
    assert s.bayes_entropy_bits == pytest.approx([math.log2(7 - k) for k in range(7)], abs=1e-12)
    assert (s.sequences, s.seed) == (600, 0)
    assert s.alternatives == {}
    last = s.accuracy.by_position[-1]
    assert last == 1, "one value is left"
    # At the k-th key a guess among V - k + 1 values: accuracy is known, here to 4.5 errors.
    for k, hit in enumerate(s.accuracy.by_position[:-1]):
        chance = 1 / (7 - k)
        assert abs(hit - chance) < 4.5 * math.sqrt(chance * (1 - chance) / 600)


def test_uniform_output_scores_as_published():
    s = score(flat(20), Bijection(20, 19), sequences=8)
    assert s.entropy_error_bits.mean == pytest.approx(1.1073, abs=5e-5)
    assert s.ladder["uniform"].entropy_error_bits.mean == pytest.approx(1.1073, abs=5e-5)
    assert s.kl_bits.worst == pytest.approx(math.log2(20 / 2), rel=1e-9)
    assert s.kl_bits.worst_position == 36
    assert s.support == "outcomes"


def test_vocabulary_predictor_leaks():
    """A uniform output over all 2V tokens leaves half its mass on keys."""
    s = score(flat(12), Bijection(6), sequences=8)
    assert s.support == "vocabulary"
    assert s.leaked_outside.mean == pytest.approx(0.5, rel=1e-12)
    assert s.leaked_inside.by_position == pytest.approx([k / 12 for k in range(6)], abs=1e-12)
    assert s.kl_bits.by_position == pytest.approx([math.log2(12 / (6 - k)) for k in range(6)])
    assert s.entropy_bits.mean == pytest.approx(math.log2(12))


def test_memory_and_rule_are_told_apart():
    """A model that follows the rule is at distance 0 from the full prior, and not from the pool."""
    task = Bijection(6, pool=1)
    s = score(bayes(6), task, sequences=64)
    assert s.alternatives["full prior"].mean == pytest.approx(0, abs=1e-12)
    expected = [math.log2(6 - k) for k in range(6)]
    assert s.kl_bits.by_position == pytest.approx(expected, abs=1e-12)
    table = task.batch(1, Stream(0, "any")).latent.table[0]

    def memory(inputs):
        keys = np.minimum(inputs, 5)
        return np.where(np.arange(6) == table[keys][..., None], 0.0, -np.inf)

    s = score(memory, task, sequences=64)
    assert s.kl_bits.mean == 0
    assert s.alternatives["full prior"].mean == math.inf


def test_normal_task():
    """The prior predictive N(0, 2), whatever was seen, has a known expected divergence."""

    def prior(inputs):
        return np.tile([0.0, math.log(2)], (*inputs.shape[:2], 1))

    s = score(prior, NormalMean(3), sequences=4000)
    pairs = zip(s.kl_bits.by_position, s.excess_cross_entropy_bits.by_position, strict=True)
    for t, (kl, estimate) in enumerate(pairs):
        variance = 1 + 1 / (t + 2)
        # E mean^2 + variance = 2 for the marginal, so the expected KL is the entropies' difference.
        expected = math.log2(2 / variance) / 2
        assert kl == pytest.approx(expected, rel=0.1)
        assert estimate == pytest.approx(expected, abs=0.05)
    assert s.accuracy is None
    assert s.leaked_outside is None


def test_a_score_is_reproducible():
    task = Bijection(5)

    def noisy(inputs):
        return np.sin(inputs)[..., None] * np.arange(5.0)

    one, two = score(noisy, task, 50, seed=3), score(noisy, task, 50, seed=3)
    assert one.to_dict() == two.to_dict()
    assert score(noisy, task, 50, seed=4).kl_bits.mean != one.kl_bits.mean


def test_what_is_written_is_plain():
    s = score(bayes(5, shift=1), Bijection(5), sequences=16)
    written = json.loads(json.dumps(s.to_dict(), allow_nan=False))
    assert written["kl_bits"]["mean"] == "inf"
    assert written["evaluation_hash"] == s.evaluation_hash
    table = s.to_markdown().splitlines()
    assert len(table) == 2 + 1 + len(s.ladder)
    assert all(line.startswith("|") and len(line) <= 100 for line in table)
    assert len({line.count("|") for line in table}) == 1
    kl = [float(line.strip("| ").split(" | ")[1]) for line in table[2:]]
    assert kl == sorted(kl)
    (own,) = (line for line in table if line.startswith("| this model |"))
    assert own.startswith("| this model | inf |")


@pytest.mark.parametrize("sequences", [1, 0, -5, 2.5, "3", True, None])
def test_number_of_sequences_is_checked(sequences):
    with pytest.raises(InvalidInput):
        score(flat(4), Bijection(4), sequences=sequences)


@pytest.mark.parametrize("seed", [1.5, "0", None])
def test_seed_is_checked(seed):
    with pytest.raises(InvalidInput):
        score(flat(4), Bijection(4), sequences=4, seed=seed)


# ---------------------------------------------------------------- intervals


def half_right(values):
    """Exact where the first key is even, uniform elsewhere: whole sequences err together."""

    def predictor(inputs):
        return np.where(inputs[:, :1, None] % 2 == 0, bayes(values)(inputs), 0.0)

    return predictor


@pytest.mark.parametrize("sequences", [100, 1600])
def test_interval_resamples_sequences(sequences):
    task = Bijection(6)
    s = score(half_right(6), task, sequences)
    each = np.mean([math.log2(6 / (6 - k)) for k in range(6)])
    wrong = evaluation_batch(task, sequences, 0).inputs[:, 0] % 2 == 1
    assert s.kl_bits.mean == pytest.approx(each * wrong.mean(), rel=1e-9)
    width = 2 * 1.96 * each * wrong.std() / math.sqrt(sequences)
    interval = s.kl_bits.interval
    assert interval.high - interval.low == pytest.approx(width, rel=0.12)
    assert interval.low < s.kl_bits.mean < interval.high
    assert (interval.level, interval.count) == (0.95, sequences)


def test_interval_covers_the_truth_about_as_often_as_it_says():
    """60 evaluation sets; the mean to be covered is that of half the sequences being wrong."""
    truth = np.mean([math.log2(4 / (4 - k)) for k in range(4)]) / 2
    covered = 0
    for seed in range(60):
        batch = evaluation_batch(Bijection(4), 60, seed)
        logits = half_right(4)(batch.inputs)[batch.scored]
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        interval = measure(Categorical(log_probs, batch.predictive.support), batch).kl_bits.interval
        covered += interval.low <= truth <= interval.high
    assert 51 <= covered <= 59


@pytest.mark.parametrize("values", [3, 4, 5, 7, 20])
def test_interval_contains_its_mean_also_without_spread(values):
    """Else the bar that is drawn has a negative side."""
    s = score(flat(values), Bijection(values), sequences=20)
    for measures in (s, *s.ladder.values()):
        for name in ("kl_bits", "entropy_error_bits", "total_variation", "leaked_inside"):
            measured = getattr(measures, name)
            if measured.interval is not None:
                assert measured.interval.low <= measured.mean <= measured.interval.high


# ---------------------------------------------------------------- evaluation set


def test_evaluation_hash_is_of_what_was_drawn():
    task = Bijection(5)
    own = evaluation_hash(evaluation_batch(task, 40, 2))
    assert re.fullmatch(r"[0-9a-f]{64}", own)
    assert own == evaluation_hash(evaluation_batch(task, 40, 2))
    assert own == score(flat(5), task, 40, seed=2).evaluation_hash
    assert own == score(bayes(5), task, 40, seed=2).evaluation_hash
    others = [
        evaluation_batch(task, 40, 3),
        evaluation_batch(task, 41, 2),
        evaluation_batch(Bijection(6), 40, 2),
        evaluation_batch(Bijection(5, format="A"), 40, 2),
        evaluation_batch(Bijection(5, pool=9), 40, 2),
    ]
    assert len({own, *map(evaluation_hash, others)}) == 6


def test_evaluation_hash_sees_each_array_and_its_shape():
    base = by_hand([[1, 1, 0, 0]], [[0, 1, -1, -1]], [[0.5, 0.5]] * 2)
    changed = [
        replace(base, inputs=base.inputs + 1),
        replace(base, targets=base.targets[:, ::-1].copy()),
        replace(base, scored=base.scored[:, ::-1].copy()),
        replace(
            base,
            inputs=base.inputs.reshape(2, 2),
            scored=base.scored.reshape(2, 2),
            targets=base.targets.reshape(2, 2),
        ),
    ]
    assert len({evaluation_hash(b) for b in (base, *changed)}) == 5


def test_evaluation_hash_is_the_same_in_another_process():
    code = (
        "from beliefspace.windtunnel.calibration import *; "
        "from beliefspace.windtunnel.tasks.bijection import Bijection; "
        "print(evaluation_hash(evaluation_batch(Bijection(5), 40, 2)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    other = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == evaluation_hash(evaluation_batch(Bijection(5), 40, 2))


def test_evaluation_is_not_training():
    task = Bijection(20)
    seen = {row.tobytes() for row in task.batch(2000, Stream(0, "train")).latent.table}
    assert not seen & {row.tobytes() for row in evaluation_batch(task, 2000, 0).latent.table}


def test_any_task_is_measured():
    """A task from outside, scored at every position: Laplace's rule is exact."""

    def laplace(inputs):
        heads = inputs.cumsum(axis=1) + 1
        return np.log(np.stack([np.arange(1, inputs.shape[1] + 1) + 2 - heads, heads], axis=-1))

    s = score(laplace, Coin(6), sequences=100)
    assert s.kl_bits.mean == pytest.approx(0, abs=1e-13)
    assert s.positions == tuple(range(6))
    assert s.ladder["uniform"].kl_bits.mean > 0.05


@dataclass(frozen=True)
class _Unscored(Coin):
    """Asks at the last position only."""

    def batch(self, sequences, stream, step=0):
        usual = Coin.batch(self, sequences, stream, step)
        last = np.zeros_like(usual.scored)
        last[:, -1] = True
        rows = np.flatnonzero(last.ravel())
        return replace(
            usual,
            scored=last,
            targets=np.where(last, usual.targets, -1),
            _predictive=lambda: usual.predictive.take(rows),
        )


def test_one_scored_position():
    s = score(flat(2), _Unscored(4), sequences=50)
    assert s.positions == (3,)
    assert s.kl_bits.by_position == (pytest.approx(s.kl_bits.mean),)
    assert s.kl_bits.worst_position == 3


def test_a_score_shows_itself_as_markdown_and_in_a_notebook():
    shown = score(lambda x: np.zeros((*x.shape, 4)), Bijection(4), 20)
    lines = shown.to_markdown().splitlines()
    assert len(lines) == 3 + len(shown.ladder)
    cells = [line.strip("| ").split(" | ") for line in lines[2:]]
    assert sorted(row[0] for row in cells) == sorted(["this model", *shown.ladder])
    kl = [float(row[1]) for row in cells]
    assert kl == sorted(kl)
    (own,) = (row for row in cells if row[0] == "this model")
    assert own[1].startswith("0.85")
    assert repr(shown) == shown.to_markdown()
    page = shown._repr_html_()
    assert page.count("<tr>") == 2 + len(shown.ladder)
    assert "<td>uniform</td>" in page


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 3.0])
def test_a_model_stands_at_its_place_on_the_ladder(scale):
    """A softened elimination is nearer to Bayes the more it is sure."""
    s = score(lambda x: scale * np.maximum(bayes(6)(x), -3), Bijection(6), 64)
    ranked = s.ranked()
    names = [name for name, _ in ranked]
    assert sorted(names) == sorted(["this model", *s.ladder])
    distances = [one.kl_bits.mean for _, one in ranked]
    assert distances == sorted(distances)
    own = names.index("this model")
    assert ranked[own][1] is s
    nearer, farther = names[own - 1], names[own + 1]
    assert s.place == f"nearer to Bayes than {farther}, not as near as {nearer}"
    assert s.ladder[nearer].kl_bits.mean < s.kl_bits.mean <= s.ladder[farther].kl_bits.mean


def test_the_ends_of_the_ladder_have_no_neighbour_beyond():
    exact = score(bayes(6), Bijection(6), 64)
    second = exact.ranked()[1][0]
    assert exact.place == f"nearer to Bayes than {second}, not as near as none of the ladder"
    wrong = score(lambda inputs: np.tile([60.0, 0.0], (*inputs.shape, 1)), Coin(6), 64)
    assert wrong.ranked()[-1][0] == "this model"
    last = wrong.ranked()[-2][0]
    assert wrong.place == f"nearer to Bayes than none of the ladder, not as near as {last}"


def test_infinitely_far_is_no_farther_than_infinitely_far():
    s = score(bayes(6, shift=1), Bijection(6), 64)
    assert s.kl_bits.mean == s.ladder["position entropy"].kl_bits.mean == math.inf
    assert s.place == "nearer to Bayes than position entropy, not as near as uniform"
    assert [name for name, _ in s.ranked()][-2:] == ["this model", "position entropy"]


def test_a_model_like_a_reference_stands_above_it():
    """Uniform output is the reference "uniform", and here also the best constant."""
    s = score(flat(6), Bijection(6), 64)
    own = s.kl_bits.mean
    assert s.ladder["uniform"].kl_bits.mean == own
    names = [name for name, _ in s.ranked()]
    place = names.index("this model")
    assert place < names.index("uniform")
    nearer, farther = names[place - 1], names[place + 1]
    assert s.ladder[nearer].kl_bits.mean < own
    assert s.ladder[farther].kl_bits.mean == own
    assert s.place == f"nearer to Bayes than {farther}, not as near as {nearer}"


def test_a_task_without_a_filter_has_no_memory():
    s = score(flat(5), Bijection(5), 20)
    assert s.memory is None
    assert s.window_equivalent is None
    assert s.to_dict()["memory"] is None
    assert "window-equivalent" not in s.to_markdown() + s._repr_html_()


def test_a_task_with_a_filter_has_a_memory_below_its_table():
    s = score(lambda x: np.zeros((*x.shape[:2], 2)), HMM(2, 2, 4), 20)
    assert s.window_equivalent == s.memory.window_equivalent["uniform"] == 1
    assert s.to_markdown().splitlines()[-2:] == ["", str(s.memory)]
    assert s._repr_html_().endswith(f"<p>{s.memory}</p>")
    windows = "window-equivalent of 4: at most 1 (uniform restart), at most 1 (stationary restart)"
    assert str(s.memory).startswith(f"{windows}; influence right at no lag (a perfect memory with")


@pytest.mark.parametrize("sequences", [19, 20])
def test_a_memory_has_windows_also_for_the_ends_of_the_interval_of_the_score(sequences):
    s = score(lambda x: np.zeros((*x.shape[:2], 2)), HMM(2, 2, 4), sequences)
    batch = evaluation_batch(HMM(2, 2, 4), sequences, 0)
    windows = HMM(2, 2, 4).windows(batch, "uniform")
    kl = [batch.predictive.kl_bits(window).mean() for window in windows]
    interval = s.kl_bits.interval
    ends = (interval.high, interval.low) if interval else 2 * (s.kl_bits.mean,)
    expected = tuple(next(w for w in range(1, 5) if kl[w - 1] <= end) for end in ends)
    assert s.memory.window_interval["uniform"] == expected


def test_the_worst_position_of_accuracy_is_the_least(tmp_path):
    shown = score(lambda x: np.zeros((*x.shape, 4)), Bijection(4), 500)
    assert shown.accuracy.worst == min(shown.accuracy.by_position)
    assert shown.kl_bits.worst == max(shown.kl_bits.by_position)


def test_too_few_sequences_have_no_interval():
    uniform = lambda x: np.zeros((*x.shape, 4))  # noqa: E731
    assert score(uniform, Bijection(4), 19).kl_bits.interval is None
    assert score(uniform, Bijection(4), 20).kl_bits.interval is not None


@pytest.mark.parametrize("task", [None, Bijection, 4])
def test_only_a_task_is_scored_on(task):
    with pytest.raises(InvalidInput, match="scored on a task"):
        score(lambda x: x, task)
