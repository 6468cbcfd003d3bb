"""The live page in the words of Prometheus: every number of every table is a metric, named after
table and column; what names a row is a label."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from masu import live

PATIENCE_S = 1.0
"""For all of them together: one that is stopped must not cost the others their scrape."""


class Collector:
    """One that ends, or never was, is left out. Why stands in `failed`, unless nobody asked for that one."""

    def __init__(self, pids: tuple[int, ...]):
        self._pids = pids
        self.failed: list[str] = []

    def _read(self) -> list[live.Figures]:
        self.failed, read, pages = [], [], []
        with contextlib.ExitStack() as opened:
            for pid in self._pids or live.processes():
                with self._noting(pid):
                    pages.append(opened.enter_context(live.Page(pid)))
                    pages[-1].ask()
            end = time.monotonic() + PATIENCE_S
            for page in pages:
                with self._noting(page.pid):
                    read.append(page.read(patience_s=max(0.0, end - time.monotonic())))
        return read

    @contextlib.contextmanager
    def _noting(self, pid: int) -> Iterator[None]:
        try:
            yield
        except live.NotLive as why:
            if self._pids or not live.has_ended(pid):
                self.failed.append(str(why))

    def collect(self) -> Iterator[Metric]:
        metrics: dict[str, Metric] = {}
        for figures in self._read():
            _add_fragmentation(metrics, figures)
            for table in figures.tables.values():
                _add(metrics, figures, table)
        yield from metrics.values()


def _add_fragmentation(metrics: dict[str, Metric], figures: live.Figures) -> None:
    name = "masu_external_fragmentation_ratio"
    metric = metrics.setdefault(name, GaugeMetricFamily(name, "slab_free : (live + slab_free)", labels=["pid", "program"]))
    metric.add_metric([str(figures.pid), figures.program], figures.fragmentation)


def _add(metrics: dict[str, Metric], figures: live.Figures, table: live.Table) -> None:
    prefix = "masu_" if table.name == "process" else f"masu_{table.name}_"
    labels = [c for c in table.columns if c.is_label]
    names = ["pid", "program", *(c.name for c in labels)]
    for column in table.columns:
        if column.is_label:
            continue
        name = prefix + column.name + "_bytes" * (column.is_bytes and not column.name.endswith("_bytes"))
        kind = CounterMetricFamily if column.only_grows else GaugeMetricFamily
        metric = metrics.setdefault(name, kind(name, column.meaning, labels=names))
        for values, number in _rows(figures, table, labels, column):
            metric.add_metric([str(figures.pid), figures.program, *values], number)


def _rows(figures: live.Figures, table: live.Table, labels: list[live.Column], column: live.Column):
    """Rows of the same name, as two named heaps may have, are one."""
    sums: dict[tuple[str, ...], int] = {}
    for row in figures.rows[table.name]:
        key = tuple(str(row[c.name]) for c in labels)
        sums[key] = sums.get(key, 0) + row[column.name]
    return sums.items()
