"""What a run tells while it goes on."""

import random

import pytest

from localmcp.library import report
from localmcp.library.report import Estimate, Run


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


def test_vectors_count_whichever_process_made_them():
    shown: list[tuple[int, int]] = []
    run = Run(lambda now: shown.append((now.vectors_done, now.vectors_total)))
    run.begin_vectors()
    for left in (1000, 400, 700, 0):
        run.leave_vectors(left)
    assert shown == [(0, 1000), (600, 1000), (600, 1300), (1300, 1300)]
