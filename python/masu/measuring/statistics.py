"""Medians, ratios and their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2_000
LEAST_ROUNDS = 5
"""Fewer span no 95 % interval: that all values lie on one side of the true median happens with five once in 16
times, with four once in eight."""


@dataclass(frozen=True)
class Estimate:
    median: float
    low: float
    high: float
    """The 95 % interval; infinite where there are too few rounds for one, or where too many of a base are 0."""

    @property
    def has_interval(self) -> bool:
        return math.isfinite(self.high - self.low)

    @property
    def differs(self) -> bool:
        """Of a ratio: is it another than 1, beyond noise?"""
        return self.high < 1 or self.low > 1

    @property
    def spread(self) -> float:
        """Half the interval, as a part of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else math.inf


def _interval(rounds: int, of_rounds: Callable[[np.ndarray], np.ndarray]) -> tuple[float, float]:
    """By the bootstrap over whole rounds: of_rounds has an index of rounds in each row, and gives a figure for each."""
    if rounds < LEAST_ROUNDS:
        return -math.inf, math.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        found = of_rounds(np.random.default_rng(0).integers(0, rounds, (RESAMPLES, rounds)))
        low, high = np.percentile(found, (2.5, 97.5)).tolist()
    return (low, high) if math.isfinite(high - low) else (-math.inf, math.inf)


def estimate(values: Sequence[float]) -> Estimate:
    data = np.asarray(values, dtype=float)
    return Estimate(float(np.median(data)), *_interval(len(data), lambda drawn: np.median(data[drawn], axis=1)))


def ratio(values: Sequence[float], base: Sequence[float]) -> Estimate:
    """Of the medians. The two are measured in the same rounds, and rounds are drawn."""
    a, b = np.asarray(values, dtype=float), np.asarray(base, dtype=float)
    middle = float(np.median(b))
    if not middle:
        return Estimate(math.nan, math.nan, math.nan)

    def of_medians(drawn):
        return np.median(a[drawn], axis=1) / np.median(b[drawn], axis=1)

    return Estimate(float(np.median(a)) / middle, *_interval(len(a), of_medians))


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if len(values) else math.nan
