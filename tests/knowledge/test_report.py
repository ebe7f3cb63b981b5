"""What a run tells while it goes on."""

import random

import pytest

from localmcp.knowledge import report
from localmcp.knowledge.report import Estimate


def test_the_time_left_hardly_ever_rises_in_a_long_run_whose_speed_varies(monkeypatch: pytest.MonkeyPatch):
    now, chance, done, total = 0.0, random.Random(1), 0.0, 1_000_000
    monkeypatch.setattr(report.time, "perf_counter", lambda: now)
    estimate, shown = Estimate(), list[float]()
    while done < total:
        speed = 600 * chance.choice((0.4, 0.7, 1, 1.3))
        for _ in range(40):
            now += 1
            done += speed
            left = estimate.left(done, total)
            shown += [] if left is None else [left]
    rises = [(before, after) for before, after in zip(shown, shown[1:], strict=False) if after > before + 1]
    assert len(rises) <= 3 and len(shown) > 1500
    assert abs(shown[len(shown) // 2] - now / 2) < 0.3 * now
