"""A search that nobody waits for is stopped from another thread, a command by Ctrl-C."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from federation import is_alive, wait_until
from tool_manifests import write_tool

from localmcp.errors import Interrupted
from localmcp.storage.database import Database, Interruption, fetch_one

ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1e12) select count(*) from n"


def test_a_running_query_ends_when_it_is_stopped(database: Database) -> None:
    mine = Interruption()
    begun, ended = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            with mine, database.read() as connection:
                begun.set()
                fetch_one(connection, ENDLESS)
        except Interrupted as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    while thread.is_alive():
        # The query may not have begun at the first try.
        mine.stop()
        thread.join(0.01)
    assert len(ended) == 1


def test_others_are_not_stopped_nor_is_the_next_caller_of_the_connection(database: Database) -> None:
    with Interruption() as stopped, database.read() as connection:
        first = connection
    stopped.stop()
    with Interruption() as mine, database.read() as connection:
        assert connection is first
        assert fetch_one(connection, "select 1") == 1
    assert not mine.stopped


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGTERM to send")
def test_a_call_that_is_told_to_end_ends_its_program(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = (
        f"import os, signal, time; open({str(pid)!r}, 'w').write(str(os.getpid())); "
        "os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"
    )
    write_tool(
        "it", f'kind = "command"\ndescription = "Wait."\nprogram = "{{python}}"\narguments = ["-c", {json.dumps(code)}]'
    )
    command = [sys.executable, "-m", "localmcp", "--db", str(tmp_path / "a.localmcp"), "call", "it"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, "Stopped." in ran.stderr) == (130, True)
    assert wait_until(lambda: not is_alive(int(pid.read_text())))
