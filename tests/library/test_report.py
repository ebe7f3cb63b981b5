"""What a run tells while it goes on."""

from localmcp.library.report import Run


def test_vectors_count_whichever_process_made_them():
    shown: list[tuple[int, int]] = []
    run = Run(lambda now: shown.append((now.vectors_done, now.vectors_total)))
    run.begin_vectors()
    for left in (1000, 400, 700, 0):
        run.leave_vectors(left)
    assert shown == [(0, 1000), (600, 1000), (600, 1300), (1300, 1300)]
