"""Small results, written by hand."""

from __future__ import annotations

POSITIONS = (0, 2, 4)

CONFIG = """\
seed = {seed}
targets = "sampled"

[task]
kind = "{task}"
values = 4

[model]
kind = "{model}"
width = {width}

[schedule]
budget = "5min"
steps = {steps}
"""


def measure(mean, by_position=None):
    """A measure as its JSON has it; the interval of a number reaches 10 % each way."""
    by_position = [mean] * len(POSITIONS) if by_position is None else by_position
    worst = max(by_position, key=float) if mean != "much" else mean
    bounds = None
    if not isinstance(mean, str):
        edges = {"low": mean * 0.9, "high": mean * 1.1}
        bounds = edges | {"level": 0.95, "method": "bootstrap", "count": 8}
    return {
        "mean": mean,
        "interval": bounds,
        "by_position": by_position,
        "worst": worst,
        "worst_position": POSITIONS[by_position.index(worst)],
    }


def measures(kl=0.02, **others):
    values = {
        "kl_bits": kl if isinstance(kl, dict) else measure(kl),
        "entropy_error_bits": measure(0.03),
        "total_variation": measure(0.04),
        "excess_cross_entropy_bits": measure(0.05),
        "accuracy": measure(0.6),
        "leaked_inside": measure(0.007),
        "leaked_outside": measure(0.0),
        "entropy_bits": measure(1.2, [2.0, 1.5, 0.1]),
    }
    return values | others


def score(kl=0.02, **others):
    ladder = {
        "uniform": measures(1.25),
        "position entropy": measures("inf", entropy_error_bits=measure(0.0)),
        "bag": measures(0.5),
    }
    return {
        **measures(kl),
        "positions": list(POSITIONS),
        "bayes_entropy_bits": [2.0, 1.6, 0.0],
        "ladder": ladder,
        "alternatives": {},
        "support": "outcomes",
        "sequences": 2048,
        "seed": 0,
        "evaluation_hash": "ab" * 32,
    } | others


def lag(number, change, slope, correlation, control=0.98):
    """The influence at a lag as its JSON has it; the interval of the slope reaches 0.1 each way."""
    bounds = {"low": slope - 0.1, "high": slope + 0.1}
    return {
        "lag": number,
        "exact_change": change,
        "slope": slope,
        "slope_interval": bounds | {"level": 0.95, "method": "bootstrap", "count": 500},
        "correlation": correlation,
        "control_correlation": control,
        "null_correlation": 0.02,
    }


LAGS = (lag(0, 0.4, 1.0, 0.99), lag(1, 0.05, 0.8, 0.9), lag(3, 0.001, 0.2, 0.3))


def memory(influence=LAGS, **others):
    return {
        "window_equivalent": {"uniform": 4, "stationary": 3},
        "window_interval": {"uniform": (3, 5), "stationary": (3, 3)},
        "steps": 20,
        "influence": list(influence),
        "sequences": 500,
    } | others


TRAINING = {
    "targets": "sampled",
    "steps": 1500,
    "predictions": 900_000,
    "sequences": 90_000,
    "cpu_seconds": 754.0,
    "parameters": 26_304,
    "operations": 2.8e11,
    "efficiency": 5930.0,
}
