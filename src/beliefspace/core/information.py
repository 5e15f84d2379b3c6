"""Entropies and divergences, in bits, of distributions given as natural-log probabilities.

====== ======================================== ================== =======================
symbol meaning                                  shape              source
====== ======================================== ================== =======================
p      reference distribution (the exact one)   [..., outcomes]    ``log_p = ln p``, nats
q      distribution under judgement             [..., outcomes]    ``log_q = ln q``, nats
H      entropy, ``-sum p log2 p``               [...]              0 log 0 = 0
KL     divergence, ``sum p log2(p / q)``        [...]              infinite if p > 0 = q
TV     total variation, ``sum |p - q| / 2``     [...]
m, v   mean and variance of a normal            [...]
====== ======================================== ================== =======================

Distributions sum to one along the last axis. A probability of zero is exactly ``-inf`` and is never
clamped, so an infinite divergence comes out as ``inf``, without a warning. Arrays that are not
float64, or whose shapes differ, raise :class:`~beliefspace.core.errors.InvalidInput`.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Float64, Integer
from scipy.special import ndtr

from beliefspace.core.errors import InvalidInput

LN2 = math.log(2.0)

Array = np.ndarray


def log_softmax(logits: Float[Array, "*batch outcomes"]) -> Float64[Array, "*batch outcomes"]:
    """Normalise logits to log-probabilities in float64.

    Args:
        logits: any real floating type, nats, [..., outcomes]; ``-inf`` marks an impossible outcome.

    Returns:
        Log-probabilities in nats, [..., outcomes]; ``-inf`` stays ``-inf``.

    Raises:
        InvalidInput: no outcomes, a NaN or ``+inf``, or a row with nothing possible.
    """
    wide = np.asarray(logits, dtype=np.float64)
    if wide.ndim == 0 or wide.shape[-1] == 0:
        raise InvalidInput(f"logits have shape {wide.shape}; expected at least one outcome")
    if not np.all(wide < np.inf):
        bad = int(np.sum(~(wide < np.inf)))
        raise InvalidInput(f"{bad} of {wide.size} logits are NaN or +inf; expected finite or -inf")
    top = wide.max(axis=-1, keepdims=True)
    if np.any(top == -np.inf):
        row = int(np.argmax(top == -np.inf))
        raise InvalidInput(f"logits row {row} is all -inf; expected a possible outcome in each row")
    shifted = wide - top
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def log_probabilities(probabilities: Float64[Array, "*batch"]) -> Float64[Array, "*batch"]:
    """Return natural logs, [...]; that of 0 is ``-inf``, without a warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probabilities))


def entropy_bits(log_p: Float64[Array, "*batch outcomes"]) -> Float64[Array, "*batch"]:
    """Return the entropy H(p) in bits, [...]."""
    return cross_entropy_bits(log_p, log_p)


def cross_entropy_bits(
    log_p: Float64[Array, "*batch outcomes"], log_q: Float64[Array, "*batch outcomes"]
) -> Float64[Array, "*batch"]:
    """Return the expected surprisal of q under p in bits, [...]; ``inf`` where p > 0 = q."""
    _check(log_p, log_q)
    possible = log_p > -np.inf
    missed = possible & (log_q == -np.inf)
    terms = np.exp(log_p) * np.where(possible & ~missed, log_q, 0.0)
    return _bits(np.where(missed.any(axis=-1), np.inf, 0.0 - terms.sum(axis=-1)))


def kl_bits(
    log_p: Float64[Array, "*batch outcomes"], log_q: Float64[Array, "*batch outcomes"]
) -> Float64[Array, "*batch"]:
    """Return KL(p || q) in bits, [...]; ``inf`` where p > 0 = q, exactly 0 where they are equal.

    The sum is that of ``p ln(p/q) - p + q``, equal to the divergence because both sum to one. Each
    term is at least 0, so nothing cancels: tiny divergences keep their relative accuracy.
    """
    _check(log_p, log_q)
    possible = log_p > -np.inf
    missed = possible & (log_q == -np.inf)
    shared = possible & ~missed
    gap = np.subtract(log_q, log_p, out=np.zeros_like(log_p), where=shared)
    p, q = np.exp(log_p), np.exp(log_q)
    # p (e^gap - 1 - gap) is accurate near gap = 0 but overflows beyond; q - p - p gap does not.
    near = p * _exponential_excess(np.minimum(gap, 1.0))
    terms = np.where(gap > 1.0, q - p - p * gap, near)
    total = np.where(shared, terms, q).sum(axis=-1)
    return _bits(np.where(missed.any(axis=-1), np.inf, total))


def total_variation(
    log_p: Float64[Array, "*batch outcomes"], log_q: Float64[Array, "*batch outcomes"]
) -> Float64[Array, "*batch"]:
    """Return the total variation distance, [...], between 0 and 1."""
    _check(log_p, log_q)
    return np.asarray(0.5 * np.abs(np.exp(log_p) - np.exp(log_q)).sum(axis=-1))


def surprisal_bits(
    log_q: Float64[Array, "*batch outcomes"], index: Integer[Array, "*batch"]
) -> Float64[Array, "*batch"]:
    """Return ``-log2 q`` of the outcome that happened, in bits, [...].

    Args:
        log_q: log-probabilities in nats, [..., outcomes].
        index: which outcome happened, 0 to outcomes - 1, [...].

    Raises:
        InvalidInput: an index that is not an integer in range, or of another shape.
    """
    _check(log_q)
    index = np.asarray(index)
    if index.shape != log_q.shape[:-1] or not np.issubdtype(index.dtype, np.integer):
        raise InvalidInput(
            f"index is {index.dtype} {index.shape}; expected integers {log_q.shape[:-1]}"
        )
    outcomes = log_q.shape[-1]
    outside = (index < 0) | (index >= outcomes)
    if outside.any():
        raise InvalidInput(f"index holds {index[outside][0]}; expected 0 to {outcomes - 1}")
    return _bits(0.0 - np.take_along_axis(log_q, index[..., None], axis=-1)[..., 0])


def brier(
    log_p: Float64[Array, "*batch outcomes"], log_q: Float64[Array, "*batch outcomes"]
) -> Float64[Array, "*batch"]:
    """Return the expected Brier score of the forecast q under p, [...], between 0 and 2.

    It is ``sum_y p(y) sum_k (q_k - [k = y])^2``: the squared distance between p and q plus the
    part ``1 - sum p^2`` that no forecast can avoid.
    """
    _check(log_p, log_q)
    p, q = np.exp(log_p), np.exp(log_q)
    return np.asarray(np.square(p - q).sum(axis=-1) + (p * (1.0 - p)).sum(axis=-1))


def normal_entropy_bits(variance: Float64[Array, "*batch"]) -> Float64[Array, "*batch"]:
    """Return the differential entropy of N(., variance) in bits, [...]; it can be negative."""
    _check_normal(variance)
    return _bits(0.5 * (math.log(2.0 * math.pi * math.e) + np.log(variance)))


def normal_kl_bits(
    mean_p: Float64[Array, "*batch"],
    var_p: Float64[Array, "*batch"],
    mean_q: Float64[Array, "*batch"],
    var_q: Float64[Array, "*batch"],
) -> Float64[Array, "*batch"]:
    """Return KL(N(mean_p, var_p) || N(mean_q, var_q)) in bits, [...]; ``inf`` past float64."""
    _check_normal(var_p, var_q, means=(mean_p, mean_q))
    with np.errstate(over="ignore"):
        spread = _exponential_excess(np.log(var_p) - np.log(var_q))
        shift = np.square((mean_p - mean_q) / np.sqrt(var_q))
        return _bits(0.5 * (spread + shift))


def normal_surprisal_bits(
    mean: Float64[Array, "*batch"],
    variance: Float64[Array, "*batch"],
    value: Float64[Array, "*batch"],
) -> Float64[Array, "*batch"]:
    """Return ``-log2`` of the density of N(mean, variance) at value, in bits, [...]."""
    _check_normal(variance, means=(mean, value))
    with np.errstate(over="ignore"):
        squared = np.square((value - mean) / np.sqrt(variance))
        return _bits(0.5 * (math.log(2.0 * math.pi) + np.log(variance) + squared))


def normal_total_variation(
    mean_p: Float64[Array, "*batch"],
    var_p: Float64[Array, "*batch"],
    mean_q: Float64[Array, "*batch"],
    var_q: Float64[Array, "*batch"],
) -> Float64[Array, "*batch"]:
    """Return the total variation distance of two normals, [...], between 0 and 1.

    In units of the narrower normal, N(0, 1) against N(m, s^2) with m >= 0 and s >= 1, the narrower
    density is the larger one exactly between the two roots of
    ``(s^2 - 1) x^2 + 2 m x - m^2 - 2 s^2 ln s``; the distance is its surplus of mass there.
    """
    _check_normal(var_p, var_q, means=(mean_p, mean_q))
    narrow, wide = np.minimum(var_p, var_q), np.maximum(var_p, var_q)
    # Past 1e100 the distance rounds to 1 whatever the exact value; the cap keeps squares finite.
    with np.errstate(over="ignore"):
        ratio = np.minimum(wide / narrow, 1e100)
        m = np.minimum(np.abs(mean_p - mean_q) / np.sqrt(narrow), 1e100)
    s, log_ratio, surplus = np.sqrt(ratio), np.log(ratio), ratio - 1.0
    reach = m + s * np.sqrt(m**2 + surplus * log_ratio)
    # Both roots in the form without cancellation; s = 1 sends the lower one to -inf.
    upper = _ratio(m**2 + ratio * log_ratio, reach, otherwise=0.0)
    lower = _ratio(-reach, surplus, otherwise=-np.inf)
    inner = ndtr(upper) - ndtr(lower)
    return np.asarray(inner - (ndtr((upper - m) / s) - ndtr((lower - m) / s)))


def _exponential_excess(x: Float64[Array, "*batch"]) -> Float64[Array, "*batch"]:
    """Return ``e^x - 1 - x``, which is never negative, also in floating point."""
    return np.asarray(np.expm1(x) - x)


def _ratio(
    above: Float64[Array, "*batch"], below: Float64[Array, "*batch"], otherwise: float
) -> Float64[Array, "*batch"]:
    out = np.full(np.shape(below), otherwise)
    np.divide(above, below, out=out, where=np.asarray(below) > 0.0)
    return out


def _bits(nats: Float64[Array, "*batch"] | np.float64) -> Float64[Array, "*batch"]:
    return np.asarray(nats / LN2)


def _check(*log_probs: Float64[Array, "*batch outcomes"]) -> None:
    for array in log_probs:
        if array.dtype != np.float64:
            raise InvalidInput(f"log-probabilities are {array.dtype}; expected float64")
        if array.ndim == 0:
            raise InvalidInput("log-probabilities are a scalar; expected [..., outcomes]")
    _check_shapes(log_probs)


def _check_normal(*variances: Float64[Array, "*batch"], means: tuple[Array, ...] = ()) -> None:
    for array in (*variances, *means):
        if array.dtype != np.float64:
            raise InvalidInput(f"parameters of a normal are {array.dtype}; expected float64")
    _check_shapes((*variances, *means))
    for variance in variances:
        bad = ~((variance > 0.0) & (variance < np.inf))
        if bad.any():
            raise InvalidInput(f"variance {variance[bad][0]} given; expected positive and finite")
    for mean in means:
        bad = ~np.isfinite(mean)
        if bad.any():
            raise InvalidInput(f"mean or value {mean[bad][0]} given; expected finite")


def _check_shapes(arrays: tuple[Array, ...]) -> None:
    shapes = [array.shape for array in arrays]
    if any(shape != shapes[0] for shape in shapes):
        raise InvalidInput(f"shapes {' and '.join(map(str, shapes))} given; expected them equal")
