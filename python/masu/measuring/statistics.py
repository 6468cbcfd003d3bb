"""Medians, ratios and their intervals; the resampling is scipy's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

RESAMPLES = 2_000


@dataclass(frozen=True)
class Estimate:
    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Half the interval, as a part of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else math.inf


def _interval(data: tuple[np.ndarray, ...], statistic) -> tuple[float, float]:
    """95 %, by the bootstrap over whole rounds; a single round has no interval."""
    if len(data[0]) < 2:
        return -math.inf, math.inf
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore")  # all rounds alike: the interval is a point
        found = stats.bootstrap(
            data,
            statistic,
            n_resamples=RESAMPLES,
            paired=len(data) > 1,
            vectorized=True,
            method="percentile",
            random_state=np.random.default_rng(0),
        ).confidence_interval
    return float(found.low), float(found.high)


def estimate(values: Sequence[float]) -> Estimate:
    data = np.asarray(values, dtype=float)
    return Estimate(float(np.median(data)), *_interval((data,), lambda x, axis=-1: np.median(x, axis=axis)))


def ratio(values: Sequence[float], base: Sequence[float]) -> Estimate:
    """Of the medians. The two are measured in the same rounds, and rounds are drawn."""
    a, b = np.asarray(values, dtype=float), np.asarray(base, dtype=float)
    middle = float(np.median(b))
    if not middle:
        return Estimate(math.nan, math.nan, math.nan)

    def of_medians(x, y, axis=-1):
        return np.median(x, axis=axis) / np.median(y, axis=axis)

    return Estimate(float(np.median(a)) / middle, *_interval((a, b), of_medians))


def geometric_mean(values: Sequence[float]) -> float:
    return float(stats.gmean(values)) if len(values) else math.nan
