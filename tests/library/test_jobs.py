"""Long work: answered in time, asked for later, cancelled."""

from __future__ import annotations

import pytest

from localmcp.errors import AccessDenied, LocalMCPError, NotFound
from localmcp.library.jobs import Job, Jobs
from localmcp.tools import Json, Scope, use_scope


def test_what_the_work_raises_reaches_the_caller() -> None:
    def denied(job: Job) -> Json:
        raise AccessDenied("Not there.")

    def broken(job: Job) -> Json:
        raise ZeroDivisionError("oops")

    with pytest.raises(AccessDenied, match="Not there"):
        Jobs().run("denied", denied)
    with pytest.raises(LocalMCPError, match="broken failed: ZeroDivisionError: oops"):
        Jobs().run("broken", broken)


def test_a_job_on_what_one_may_not_see_does_not_exist() -> None:
    jobs = Jobs()
    job = jobs.run("quick", lambda job: {})
    with use_scope(Scope(collections=frozenset(["default"]))):
        with pytest.raises(NotFound):
            jobs.find(job.id)
        own = jobs.run("quick", lambda job: {})
        assert jobs.find(own.id) is own
    assert jobs.find(own.id) is own
    with pytest.raises(NotFound, match="No job 'x'"):
        jobs.find("x")
