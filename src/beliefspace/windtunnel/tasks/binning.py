"""A real outcome as one of several bins that are equally probable beforehand.

Symbols:
    m         bins                                                        ``bins``
    spread    standard deviation of N(0, spread²), which the bins divide evenly
    e_0..e_m  edges; e_0 = -inf and e_m = inf, so that every outcome has a bin    ``[m + 1]``
    a, b      lower and upper edge of a bin, in standard deviations from the mean ``[s, m]``

The mass of a bin is Φ(b) - Φ(a), as a difference of logarithms; on the right of the mean it is
Φ(-a) - Φ(-b), where nothing cancels. So a bin far out in either tail keeps its mass.
"""

from __future__ import annotations

import itertools
from statistics import NormalDist

import numpy as np
from jaxtyping import Float64, Int64
from scipy.special import log_ndtr, ndtri

from beliefspace.core.distributions import Categorical, Normal

_REACH = 38.0  # standard deviations; the mass beyond is no float64
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def bin_edges(bins: int, spread: float) -> Float64[np.ndarray, " m+1"]:
    """Return the edges of bins that N(0, ``spread``²) fills evenly; the outermost are infinite."""
    return np.asarray(spread * ndtri(np.arange(bins + 1) / bins))


def bin_index(
    values: Float64[np.ndarray, "*batch"], edges: Float64[np.ndarray, " m+1"]
) -> Int64[np.ndarray, "*batch"]:
    """Return the bin 0 ... m - 1 of each value; one on an edge is in the bin above."""
    return np.asarray(np.searchsorted(edges[1:-1], values, side="right"), dtype=np.int64)


def binned(normal: Normal, edges: Float64[np.ndarray, " m+1"]) -> Categorical:
    """Return the mass of each bin, as exact as float64 allows.

    Args:
        normal: ``s`` rows.
        edges: of m bins, increasing, from -inf to inf.
    """
    standard = (edges - normal.mean[:, None]) / np.sqrt(normal.variance)[:, None]
    a, b = standard[:, :-1], standard[:, 1:]
    mirrored = a > -b
    low, high = log_ndtr(np.where(mirrored, -b, a)), log_ndtr(np.where(mirrored, -a, b))
    return Categorical(high + np.log1p(-np.exp(low - high)))


def binned_by_quadrature(normal: Normal, bins: int, spread: float) -> Categorical:
    """Derive the same again by integrating the density over each bin; slow, for references."""
    prior = NormalDist(0.0, spread)
    inner = [prior.inv_cdf(k / bins) for k in range(1, bins)]
    rows = []
    for mean, deviation in zip(normal.mean, np.sqrt(normal.variance), strict=True):
        standard = (np.array(inner) - mean) / deviation
        bounds = [-_REACH, *np.clip(standard, -_REACH, _REACH), _REACH]
        rows.append([_integral(*pair) for pair in itertools.pairwise(bounds)])
    return Categorical.proportional_to(np.array(rows))


def _integral(low: float, high: float) -> float:
    """Integrate the standard normal density, by Gauss and Legendre on panels of up to one unit."""
    ends = np.linspace(low, high, 2 + int(high - low))
    half = np.diff(ends)[:, None] / 2
    points = ends[:-1, None] + half * (1 + _NODES)
    density = np.exp(-(points**2) / 2) / np.sqrt(2 * np.pi)
    return float((half * density * _WEIGHTS).sum())
