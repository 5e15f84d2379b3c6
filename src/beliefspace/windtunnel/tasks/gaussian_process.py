"""Gaussian-process regression in context: the function itself is drawn anew for each sequence.

Pairs x, y come one after another, and at each x the model is asked for y. One sequence with the
kernel "rbf", d = 1, L = 3, s = 1, ℓ = 0.2 and σ = 0.1::

    position       0       1       2       3       4
    is a           x       y       x       y       x
    input        0.62      0      0.03     0      0.39      (x)
                   0     0.26      0     0.12      0        (y)
                   0       1       0       1       0        (whether it is a y)
    target       0.26            0.12            0.54
    Bayes      0 ± 1.00       0.00 ± 1.00     0.16 ± 0.85   (mean ± standard deviation)
    bits         2.05            2.05            1.81       (differential entropy)

Symbols (see :mod:`.sequential_normal` for the rest):
    d        dimensions of x, uniform on [0, 1]^d                      ``dimensions``
    s, ℓ     standard deviation of f, and the length it varies over    ``scale``, ``length_scale``
    r        Euclidean distance of two x, divided by ℓ                 ``[n, L, L]``
    k        kernel: the covariance of f at two x                      ``[n, L, L]``
    f        the function, f ~ GP(0, k); y = f(x) + N(0, σ²)           ``[n, L]``
    P        locations, where their covariance is given                ``[P, P]``

Kernels, as factors of s² (Rasmussen and Williams, 2006, chapter 4):
    rbf                   exp(-r²/2)
    matern-1/2            exp(-r)
    matern-3/2            (1 + √3 r) exp(-√3 r)
    matern-5/2            (1 + √5 r + 5 r²/3) exp(-√5 r)
    periodic              rbf with each difference Δ of coordinates bent onto a circle,
                          2 sin(π Δ / period)
    powered-exponential   exp(-r^power), 0 < power <= 2
    given                 the matrix that is given; x is the one-hot vector of a location, and
                          locations are drawn with replacement, equally likely
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float64, Int64
from scipy.special import gamma, kv

from beliefspace.core.checks import as_rows, check_choice, check_whole, check_within
from beliefspace.core.distributions import Normal
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.tasks.base import Batch, Predictive, Primitive, Task
from beliefspace.windtunnel.tasks.sequential_normal import (
    LEAST_SCALE,
    MOST_SCALE,
    Examples,
    RegressionTask,
    check_covariance,
    rounded,
)

Kernel = Literal[
    "rbf", "matern-1/2", "matern-3/2", "matern-5/2", "periodic", "powered-exponential", "given"
]

_NUGGET = 1e-9  # of s²: keeps the factor of a covariance that is singular in float64


@register("tasks", "gaussian-process")
@dataclass(frozen=True)
class GaussianProcess(RegressionTask):
    """Predict y = f(x) + noise from the pairs before it, f being drawn for each sequence.

    Args:
        kernel: covariance of f at two x, a formula or "given"; see the module.
        dimensions: of x, d >= 1; with "given" it stays 1.
        examples: pairs of a sequence, L, 1 to 256; 2L - 1 positions.
        scale: standard deviation of f, s (with "given": a factor), 1e-6 to 1e6.
        length_scale: ℓ, in units of x, 1e-6 to 1e6.
        noise: standard deviation of the noise, σ: at least 1/1000 of the signal's.
        power: of the powered-exponential kernel, greater than 0 and at most 2: beyond that it is
            not positive definite.
        period: of the periodic kernel, in units of x, 1e-6 to 1e6.
        covariance_matrix: with "given", the covariance of f over P locations: P rows of P numbers.
        bins: None for a real outcome, or the number of bins that hold it, equally probable under
            the normal of the outcome's variance; 2 to 10,000.

    Raises:
        InvalidInput: a setting out of range, or a kernel that is not positive definite.
    """

    kernel: Kernel = "rbf"
    dimensions: int = 1
    examples: int = 16
    scale: float = 1.0
    length_scale: float = 0.2
    noise: float = 0.1
    power: float = 1.0
    period: float = 0.5
    covariance_matrix: tuple[tuple[float, ...], ...] | None = None
    bins: int | None = None

    def __post_init__(self) -> None:
        check_choice("kernel", self.kernel, get_args(Kernel))
        check_whole("dimensions", self.dimensions, 1, most=1000)
        for name in ("scale", "length_scale", "period"):
            check_within(name, getattr(self, name), LEAST_SCALE, MOST_SCALE)
        _check_used(self)
        if self.covariance_matrix is not None:
            rows = as_rows("covariance_matrix", self.covariance_matrix)
            object.__setattr__(self, "covariance_matrix", rows)
        _check_matrix(self)
        self.check()

    @property
    def prior(self) -> str:
        """The laws of function, features and noise."""
        where = f"x uniform on [0, 1]^{self.dimensions}"
        shape = f"length scale {self.length_scale:g}"
        if self.kernel == "given":
            where, shape = f"x one of {self.coordinates} locations", "covariance as given"
        return (
            f"f ~ GP(0, {self.kernel}) with scale {self.scale:g}, {shape}; {where}; "
            f"noise N(0, σ²) with σ = {self.noise:g}"
        )

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """Evidence is weighted by where it was seen: retrieved by content, then folded in."""
        return ("accumulation", "binding")

    @property
    def coordinates(self) -> int:
        """d, or the number of locations."""
        return self.dimensions if self.covariance_matrix is None else len(self.covariance_matrix)

    @property
    def signal_variance(self) -> float:
        """s², times the mean variance over the locations where these are given."""
        given = self.covariance_matrix
        return self.scale**2 * (1.0 if given is None else float(np.mean(np.diag(given))))

    @classmethod
    def tiny(cls) -> tuple[Task, ...]:
        """Every kernel, one dimension and two, one example, little noise, and bins."""
        given = ((2.0, -0.5, 0.3), (-0.5, 1.0, 0.4), (0.3, 0.4, 0.5))
        smooth: tuple[Kernel, ...] = ("matern-1/2", "matern-3/2", "matern-5/2", "periodic")
        return (
            cls("rbf", 1, 3),
            cls("rbf", 2, 5, 1.5, 0.4),
            *(cls(kernel, 2, 5, 0.7, 0.5, 0.3) for kernel in smooth),
            cls("powered-exponential", 2, 5, power=1.5),
            cls("given", examples=6, scale=1.2, covariance_matrix=given),
            cls("rbf", 1, 1),
            cls("rbf", 1, 6, noise=0.01),
            cls("matern-3/2", 1, 4, bins=5),
            cls("given", examples=4, covariance_matrix=given, bins=8),
        )

    def covariance(self, x: Float64[np.ndarray, "n L f"]) -> Float64[np.ndarray, "n L L"]:
        """Return the kernel at every two x of a sequence."""
        if self.covariance_matrix is not None:
            given = np.array(self.covariance_matrix, dtype=np.float64)
            return np.asarray(self.scale**2 * (x @ given @ x.swapaxes(1, 2)))
        differences = x[:, :, None] - x[:, None]
        if self.kernel == "periodic":
            differences = 2 * np.sin(np.pi * differences / self.period)
        r = np.sqrt((differences**2).sum(axis=-1)) / self.length_scale
        return np.asarray(self.scale**2 * self._correlation(r))

    def draw(self, sequences: int, stream: Stream, step: int) -> Examples:
        """Draw features, the function at them, and noise."""
        x = self._features(sequences, stream, step)
        nugget = _NUGGET * self.signal_variance
        # The nugget is taken out of the noise, so that the law of y is the exact one.
        factor = np.linalg.cholesky(self.covariance(x) + nugget * np.eye(self.examples))
        white = stream.normals(step, sequences, self.examples, "function")
        values = (factor @ white[:, :, None])[:, :, 0]
        noise = stream.normals(step, sequences, self.examples, "noise")
        return Examples(values, x, rounded(values + math.sqrt(self.noise**2 - nugget) * noise))

    def ladder(self, batch: Batch) -> Mapping[str, Predictive]:
        """Exact predictives that use none or one of the earlier pairs.

        "prior" ignores them: N(0, k(x, x) + σ²). "last observation" and "nearest neighbour" are
        exact given one pair alone: the one just before, or the one that tells most about y (for a
        kernel that falls with distance the nearest).
        """
        examples = batch.latent
        covariance = self.covariance(examples.x)
        variance = np.diagonal(covariance, axis1=1, axis2=2) + self.noise**2
        earlier = np.tri(self.examples, k=-1, dtype=bool)
        told = np.where(earlier, covariance**2 / variance[:, None, :], -1.0)
        previous = np.broadcast_to(np.arange(self.examples) - 1, variance.shape)
        rungs = {
            "prior": Normal(np.zeros(variance.size), variance.ravel()),
            "last observation": _given_one(covariance, variance, examples.y, previous),
            "nearest neighbour": _given_one(covariance, variance, examples.y, told.argmax(axis=2)),
        }
        return {name: self.in_bins(rung) for name, rung in rungs.items()}

    def derive(
        self, x: Float64[np.ndarray, "k f"], y: Float64[np.ndarray, " k-1"]
    ) -> tuple[float, float]:
        """Derive the predictive from the last row of the joint precision of all outcomes."""
        joint = [[_kernel_again(self, one, other) for other in x] for one in x]
        precision = np.linalg.inv(np.array(joint) + self.noise**2 * np.eye(len(x)))
        return float(-precision[-1, :-1] @ y / precision[-1, -1]), float(1 / precision[-1, -1])

    def _features(self, sequences: int, stream: Stream, step: int) -> Float64[np.ndarray, "n L f"]:
        if self.kernel == "given":
            places = stream.integers(step, sequences, self.examples, self.coordinates, "features")
            return np.asarray(np.eye(self.coordinates)[places])
        flat = stream.uniforms(step, sequences, self.examples * self.dimensions, "features")
        return rounded(flat.reshape(sequences, self.examples, self.dimensions))

    def _correlation(self, r: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        """Return the kernel over s² at distances in length scales."""
        if self.kernel == "powered-exponential":
            return np.asarray(np.exp(-(r**self.power)))
        if self.kernel in ("rbf", "periodic"):
            return np.asarray(np.exp(-(r**2) / 2))
        polynomial, root = {
            "matern-1/2": (1.0, 1.0),
            "matern-3/2": (1 + math.sqrt(3) * r, math.sqrt(3)),
            "matern-5/2": (1 + math.sqrt(5) * r + 5 * r**2 / 3, math.sqrt(5)),
        }[self.kernel]
        return np.asarray(polynomial * np.exp(-root * r))


def _given_one(
    covariance: Float64[np.ndarray, "n L L"],
    variance: Float64[np.ndarray, "n L"],
    y: Float64[np.ndarray, "n L"],
    chosen: Int64[np.ndarray, "n L"],
) -> Normal:
    """Condition each outcome on one chosen before it; the first has none."""
    cross = np.take_along_axis(covariance, chosen[:, :, None], axis=2)[:, :, 0]
    gain = cross / np.take_along_axis(variance, chosen, axis=1)
    gain[:, 0] = 0
    mean = gain * np.take_along_axis(y, chosen, axis=1)
    return Normal(mean.ravel(), (variance - gain * cross).ravel())


def _kernel_again(
    task: GaussianProcess, one: Float64[np.ndarray, " f"], other: Float64[np.ndarray, " f"]
) -> float:
    """The kernel of two x by other formulas: Bessel functions, cosines, a factor a coordinate."""
    differences, r = one - other, math.dist(one, other) / task.length_scale
    if task.covariance_matrix is not None:
        factor = task.covariance_matrix[int(one.argmax())][int(other.argmax())]
    elif r == 0:
        factor = 1.0
    elif task.kernel == "periodic":
        cosines = np.cos(2 * np.pi * differences / task.period)
        factor = math.exp((cosines - 1).sum() / task.length_scale**2)
    elif task.kernel == "rbf":
        factor = math.prod(math.exp(-((d / task.length_scale) ** 2) / 2) for d in differences)
    elif task.kernel == "powered-exponential":
        factor = math.exp(-math.exp(task.power * math.log(r)))
    else:
        order = float(Fraction(task.kernel.removeprefix("matern-")))
        z = math.sqrt(2 * order) * r
        factor = float(2 ** (1 - order) / gamma(order) * z**order * kv(order, z))
    return task.scale**2 * factor


def _check_used(task: GaussianProcess) -> None:
    """Raise if a setting of another kernel was given: it would change nothing but the name."""
    check_within("power", task.power, 0, 2)
    if task.power == 0:
        raise InvalidInput("power is greater than 0; got 0")
    owners = {
        "power": ("powered-exponential",),
        "period": ("periodic",),
        "length_scale": tuple(kernel for kernel in get_args(Kernel) if kernel != "given"),
    }
    defaults = {one.name: one.default for one in fields(task)}
    for name, kernels in owners.items():
        if task.kernel not in kernels and getattr(task, name) != defaults[name]:
            raise InvalidInput(f'{name} is no setting of kernel "{task.kernel}"; leave it out')


def _check_matrix(task: GaussianProcess) -> None:
    matrix = task.covariance_matrix
    if (task.kernel == "given") != (matrix is not None):
        raise InvalidInput(
            f'kernel "given" and covariance_matrix go together; got kernel = "{task.kernel}" '
            f"{'without' if matrix is None else 'with'} a covariance_matrix"
        )
    if matrix is None:
        return
    if task.dimensions != 1:
        raise InvalidInput(
            f'with kernel "given" x is a location and dimensions stays 1; got {task.dimensions}'
        )
    check_covariance("covariance_matrix", matrix, max(1, len(matrix)))
