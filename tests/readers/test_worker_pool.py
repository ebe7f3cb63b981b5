"""Worker processes turn items into values, and no item can stop the others."""

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from localmcp.errors import UnreadableDocument
from localmcp.readers import worker_pool
from localmcp.readers.worker_pool import Limits, WorkerPool, count_text

STRICT = Limits(seconds=0.3, seconds_per_megabyte=0.6, memory=300_000_000)


def handle(item):
    """What the tests ask of a worker: an item is an order."""
    order, _, argument = item.partition(" ")
    if order == "double":
        yield int(argument) * 2
    elif order == "pid":
        yield os.getpid()
    elif order == "burn":
        burn(float(argument))
        yield "burned"
    elif order == "read":
        count_text(int(argument))
        burn(0.6)
        yield "read"
    elif order == "allocate":
        yield len(bytes(int(argument)) + b"x")
    elif order == "swell":
        pieces = []
        while True:
            pieces.append(b"x" * 1_000_000)
            time.sleep(0.001)
    elif order == "crash":
        ctypes.string_at(0)
    elif order == "raise":
        raise ValueError("odd")
    elif order == "refuse":
        raise UnreadableDocument("It is empty.")
    elif order == "print":
        print("noise", flush=True)
        os.write(1, b"more noise")
        yield "printed"
    elif order == "large":
        yield "x" * int(argument)
    elif order == "behind":
        yield from ("small", "small", "small")
        yield from handle("read 1000000")
    elif order == "mailbox":
        for number in range(6):
            burn(60 if number == 2 else 0.02)
            yield number
    elif order == "parts":
        for number in range(400):
            burn(0.05)
            yield number


def burn(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        sum(range(1000))


class Failure(str):
    """Why an item was given up."""


def run(items, *, workers=2, limits=STRICT):
    """Values and failures of each item, by item; files are of 1 MB unless the order is odd."""
    results = {item: [] for item in items}
    with WorkerPool(
        handle, workers=workers, limits=limits, size=lambda item: 1 if item[-1] == "1" else 1_000_000
    ) as pool:
        for answer in pool.run(items):
            failures = [Failure(answer.failure)] if answer.failure else []
            results[answer.item] += [*failures, "end"] if answer.finished else [answer.value]
    return results


def test_every_item_is_answered_and_ends_once():
    orders = [f"double {number}" for number in range(50)]
    assert run(orders) == {order: [number * 2, "end"] for number, order in enumerate(orders)}


def test_each_kind_of_bomb_gets_its_reason_and_the_others_their_values():
    orders = ["burn 60", "crash", "raise", "refuse", "print", "double 4"]
    results = run(orders) | run(["swell", "allocate 900000000"], limits=replace(STRICT, seconds=10))
    failures = {order: answers[0] for order, answers in results.items() if isinstance(answers[0], Failure)}
    assert all(answers[-1] == "end" and len(answers) == 2 for answers in results.values())
    assert failures["burn 60"] == "reading it took more than 0.3 s of processor time"
    assert "300 MB of memory" in failures["swell"]
    assert "300 MB of memory" in failures["allocate 900000000"]
    assert "crashed" in failures["crash"]
    assert failures["raise"] == "unexpected ValueError: odd"
    assert failures["refuse"] == "It is empty."
    assert results["print"] == ["printed", "end"] and results["double 4"] == [8, "end"]


def test_text_that_was_yielded_allows_more_time():
    # What it was packed to hold beyond a hundred characters a byte does not count.
    assert run(["read 1500000", "read 10", "read 1500001"], workers=1) == {
        "read 1500000": ["read", "end"],
        "read 1500001": ["reading it took more than 0.3 s of processor time", "end"],
        "read 10": ["reading it took more than 0.3 s of processor time", "end"],
    }


def test_a_container_keeps_what_was_read_before_its_limits():
    results = run(["mailbox", "double 2"], workers=1)
    zero, one, reason, end = results["mailbox"]
    assert (zero, one, end) == (0, 1, "end") and "processor time" in reason and results["double 2"] == [4, "end"]


def test_a_container_of_many_small_parts_costs_no_more_than_one_file():
    start = time.monotonic()
    results = run(["parts"], workers=1)["parts"]
    assert results[-1] == "end" and isinstance(results[-2], Failure)
    assert time.monotonic() - start < 5


def test_workers_wait_while_nobody_takes_their_values(monkeypatch):
    monkeypatch.setattr(worker_pool, "UNDELIVERED_BYTES", 1_000_000)
    with WorkerPool(handle, workers=1, limits=Limits()) as pool:
        answers = pool.run([f"large {900_000 + number}" for number in range(8)])
        next(answers)
        time.sleep(0.3)
        assert pool._undelivered < 3_000_000
        # One of them is cut short: its room is free again.
        pool._workers[0].process.kill()
        rest = list(answers)
        assert sum(len(answer.value) for answer in rest if answer.value) > 6 * 900_000 - 1
        assert [answer.failure for answer in rest if answer.failure] == ["the reader crashed on it (signal 9)"]
        assert pool._undelivered == 0


def test_text_that_nobody_has_taken_yet_allows_more_time_too(monkeypatch):
    monkeypatch.setattr(worker_pool, "UNDELIVERED_BYTES", 1)
    with WorkerPool(handle, workers=1, limits=STRICT, size=lambda item: 1_000_000) as pool:
        answers = pool.run(["behind"])
        next(answers)
        time.sleep(1.5)
        assert [answer.value or answer.failure for answer in answers] == ["small", "small", "read", ""]


def test_a_worker_that_grew_is_replaced(monkeypatch):
    monkeypatch.setattr(worker_pool, "RETIRE_BYTES", 1)
    pids = run(["pid 0", "burn 0.2", "pid 2"], workers=1)
    assert pids["pid 0"] != pids["pid 2"]


def test_abandoned_answers_end_the_workers():
    before = psutil.Process().children()
    answers = WorkerPool(handle, workers=2).run(["double 1", "burn 30", "burn 31"])
    assert next(answers).value == 2
    answers.close()
    assert psutil.Process().children() == before


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a signal")
def test_workers_die_with_their_parent_and_do_not_hear_ctrl_c(tmp_path):
    script = textwrap.dedent("""
        import sys
        sys.path.insert(0, sys.argv[1])
        from test_worker_pool import handle
        from localmcp.readers.worker_pool import WorkerPool
        with WorkerPool(handle, workers=2) as pool:
            for answer in pool.run(["pid 1", "pid 2", "burn 30", "burn 31"]):
                if answer.value:
                    print(answer.value, flush=True)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    ) as parent:
        pids = [int(parent.stdout.readline()), int(parent.stdout.readline())]
        workers = [psutil.Process(pid) for pid in set(pids)]
        for member in workers:
            member.send_signal(signal.SIGINT)
        assert all(member.is_running() for member in workers)
        parent.kill()
        _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []
