"""Long work: answered in time, watched from anywhere, carried on when its process is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from localmcp.errors import AccessDenied, LocalMCPError, NotFound
from localmcp.library.background import Announcement
from localmcp.library.jobs import Execution, Jobs
from localmcp.storage.database import Database, fetch_one
from localmcp.storage.times import utc_now
from localmcp.tools import Scope, current_scope, use_scope

LONG_AGO = "2020-01-01T00:00:00.000Z"


class Bench:
    """Work that waits until it is told to go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.began = threading.Event()
        self.runs: list[dict[str, Any]] = []
        self.scopes: list[Scope] = []

    def quick(self, arguments: dict[str, Any], tell: Execution) -> dict[str, Any]:
        self.runs.append(arguments)
        self.scopes.append(current_scope())
        tell(1, 1, "a.md")
        return {"sum": arguments["a"] + arguments["b"]}

    def slow(self, arguments: dict[str, Any], tell: Execution) -> dict[str, Any]:
        tell(3, 10, "b.md")
        self.began.set()
        assert self.go_on.wait(60)
        return {}

    def denied(self, arguments: dict[str, Any], tell: Execution) -> dict[str, Any]:
        raise AccessDenied("Not there.")

    def broken(self, arguments: dict[str, Any], tell: Execution) -> dict[str, Any]:
        raise ZeroDivisionError("oops")


@pytest.fixture
def bench(database: Database) -> Iterator[Bench]:
    bench = Bench()
    yield bench
    # Work that still waits would fail, and say so, in the middle of some other test.
    bench.go_on.set()


@pytest.fixture
def jobs(database: Database, bench: Bench) -> Jobs:
    return make(database, bench)


def make(database: Database, bench: Bench) -> Jobs:
    kinds = {"quick": bench.quick, "slow": bench.slow, "denied": bench.denied, "broken": bench.broken}
    return Jobs(database, kinds)


def row(database: Database, job_id: str) -> tuple[Any, ...]:
    with database.read() as connection:
        return fetch_one(connection, "select status, done, total, arguments from jobs where id = ?", (job_id,))


def abandon(database: Database, job_id: str, heartbeat: str = LONG_AGO) -> None:
    """As if the process that ran it had been killed long ago."""
    with database.write() as connection:
        connection.execute("update jobs set status = 'running', heartbeat_at = ? where id = ?", (heartbeat, job_id))


def test_quick_work_is_answered_at_once(jobs: Jobs, database: Database) -> None:
    state = jobs.run("quick", {"a": 1, "b": 2})
    assert (state.status, state.result, state.done, state.total) == ("done", {"sum": 3}, 1, 1)
    assert row(database, state.id)[:3] == ("done", 1, 1)


def test_long_work_goes_on_after_the_answer(jobs: Jobs, bench: Bench) -> None:
    state = jobs.run("slow", {}, wait=0)
    assert (state.status, state.result) == ("running", None)
    bench.began.wait(60)
    state = jobs.state(state.id)
    assert (state.status, state.done, state.total, state.message) == ("running", 3, 10, "b.md")
    bench.go_on.set()
    assert jobs.state(state.id, wait=60).status == "done"


def test_what_the_work_raises_reaches_the_caller(jobs: Jobs) -> None:
    with pytest.raises(AccessDenied, match="Not there"):
        jobs.run("denied", {})
    with pytest.raises(LocalMCPError, match="broken failed: ZeroDivisionError: oops"):
        jobs.run("broken", {})


def test_another_process_sees_where_a_job_stands(jobs: Jobs, database: Database, bench: Bench) -> None:
    other = make(database, Bench())
    state = jobs.run("slow", {}, wait=0)
    assert other.state(state.id).status == "running"
    bench.go_on.set()
    jobs.state(state.id, wait=60)
    assert other.state(state.id).status == "done"
    with pytest.raises(AccessDenied):
        jobs.run("denied", {})


def test_a_job_of_another_process_that_is_cancelled_says_so(jobs: Jobs, database: Database) -> None:
    job_id = jobs.run("slow", {}, wait=0).id
    assert make(database, Bench()).cancel(job_id).status == "cancelled"


def test_a_job_of_another_process_is_waited_for(jobs: Jobs, database: Database, bench: Bench) -> None:
    other = make(database, Bench())
    job_id = jobs.run("slow", {}, wait=0).id
    threading.Timer(0.2, bench.go_on.set).start()
    assert other.state(job_id, wait=60).status == "done"


def test_the_end_of_a_failed_job_is_kept_with_its_reason(jobs: Jobs, database: Database) -> None:
    with pytest.raises(AccessDenied):
        jobs.run("denied", {})
    with database.read() as connection:
        job_id = fetch_one(connection, "select id from jobs")
    state = make(database, Bench()).state(job_id)
    assert (state.status, state.message) == ("failed", "Not there.")


@pytest.mark.parametrize("heartbeat", [LONG_AGO, utc_now(-86_400)], ids=["old", "before the clock was set back"])
def test_an_abandoned_job_is_carried_on_by_whoever_asks(jobs: Jobs, database: Database, heartbeat: str) -> None:
    job_id = jobs.run("slow", {}, wait=0).id
    abandon(database, job_id, heartbeat)
    bench = Bench()
    bench.go_on.set()
    other = make(database, bench)
    other.state(job_id)
    assert other.state(job_id, wait=60).status == "done"
    assert row(database, job_id)[0] == "done"


def test_a_job_that_another_process_took_over_and_finished_stays_done(
    jobs: Jobs, database: Database, bench: Bench
) -> None:
    job_id = jobs.run("slow", {}, wait=0).id
    abandon(database, job_id)
    other = Bench()
    other.go_on.set()
    assert make(database, other).resume_abandoned() == [job_id]
    while row(database, job_id)[0] == "running":
        time.sleep(0.01)
    # The first had only been asleep, and fails now.
    jobs._ours[job_id].error = LocalMCPError("the disk went to sleep")
    bench.go_on.set()
    jobs.state(job_id, wait=60)
    assert row(database, job_id)[0] == "done"


def test_a_run_on_the_command_line_that_was_killed_stops_no_job_and_is_not_shown_to_a_bound_caller(
    jobs: Jobs, database: Database
) -> None:
    run = Announcement(50)
    with database.write() as connection:
        run.begin(connection)
        connection.execute("update jobs set heartbeat_at = ?", (LONG_AGO,))
    assert jobs.resume_abandoned() == []
    assert jobs.state(run.id).status == "running"
    with use_scope(Scope(collections=frozenset({"default"}))):
        assert jobs.resume_abandoned() == []
        with pytest.raises(NotFound):
            jobs.state(run.id)


def test_a_job_with_a_fresh_heartbeat_is_left_to_its_owner(jobs: Jobs, database: Database, bench: Bench) -> None:
    job_id = jobs.run("slow", {}, wait=0).id
    other = Bench()
    assert make(database, other).state(job_id).status == "running"
    assert make(database, other).resume_abandoned() == []
    assert not other.began.is_set()
    bench.go_on.set()
    jobs.state(job_id, wait=60)


def test_of_two_that_ask_only_one_carries_a_job_on(jobs: Jobs, database: Database) -> None:
    job_id = jobs.run("slow", {}, wait=0).id
    abandon(database, job_id)
    first, second = Bench(), Bench()
    assert make(database, first).resume_abandoned() == [job_id]
    assert make(database, second).resume_abandoned() == []
    first.go_on.set()


def test_a_job_runs_in_the_scope_of_the_one_who_started_it(jobs: Jobs, database: Database, bench: Bench) -> None:
    narrow = Scope(
        caller="key-1", trusted=False, collections=frozenset(["default"]), tools=frozenset(["refresh"]),
        provider_names=frozenset(), rights=frozenset(["read", "write"]),
    )  # fmt: skip
    with use_scope(narrow):
        job_id = jobs.run("quick", {"a": 1, "b": 1}).id
    with database.write() as connection:
        sql = """
            update jobs set status = 'running', heartbeat_at = ?, finished_at = null,
                arguments = json_set(arguments, '$.arguments', json('{"a": 2, "b": 2}'))
        """
        connection.execute(sql, (LONG_AGO,))
    other = make(database, bench)
    assert other.resume_abandoned() == [job_id]
    assert other.state(job_id, wait=60).result == {"sum": 4}
    assert bench.scopes == [narrow, narrow]


def test_a_job_on_what_one_may_not_see_does_not_exist(jobs: Jobs) -> None:
    job_id = jobs.run("quick", {"a": 1, "b": 1}).id
    with use_scope(Scope(collections=frozenset(["default"]))):
        with pytest.raises(NotFound):
            jobs.state(job_id)
        own = jobs.run("quick", {"a": 1, "b": 1}).id
        assert jobs.state(own).status == "done"
    assert jobs.state(own).status == "done"


def test_a_job_that_never_was_is_not_found(jobs: Jobs) -> None:
    with pytest.raises(NotFound, match="No job 'x'"):
        jobs.state("x")


def test_arguments_are_forgotten_once_they_are_used(jobs: Jobs, database: Database) -> None:
    job_id = jobs.run("quick", {"a": 1, "b": 1, "text": "a whole book"}).id
    assert "book" not in row(database, job_id)[3]


def test_finished_jobs_are_forgotten_after_a_week(jobs: Jobs, database: Database) -> None:
    job_id = jobs.run("quick", {"a": 1, "b": 1}).id
    with database.write() as connection:
        connection.execute("update jobs set finished_at = ?", (LONG_AGO,))
    jobs.run("quick", {"a": 1, "b": 1})
    with pytest.raises(NotFound):
        jobs.state(job_id)


def test_a_heartbeat_tells_other_processes_how_far_it_is(
    jobs: Jobs, database: Database, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmcp.library.jobs.HEARTBEAT_SECONDS", 0.01)
    job_id = jobs.run("slow", {}, wait=0).id
    other = make(database, Bench())
    deadline = time.monotonic() + 60
    while other.state(job_id).done != 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    state = other.state(job_id)
    bench.go_on.set()
    assert (state.status, state.done, state.total, state.message) == ("running", 3, 10, "b.md")
    jobs.state(job_id, wait=60)
