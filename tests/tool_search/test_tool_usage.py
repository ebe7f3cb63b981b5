"""Counts of calls: what is counted, and what is kept."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from localmcp.errors import NotFound
from localmcp.tool_search.usage import ToolUsage
from localmcp.tools import Answer, CallRecord, Scope


def record(tool: str, *, failed: bool = False, refused: bool = False) -> CallRecord:
    answer = None if failed else Answer({}, "", is_error=refused)
    return CallRecord(tool, {"secret": "words"}, Scope(), 0.0, 0.1, NotFound("no") if failed else None, answer)


def test_only_calls_that_succeed_are_counted() -> None:
    usage = ToolUsage()
    for each in (record("a"), record("a"), record("a", failed=True), record("b", refused=True)):
        usage.note_call(each)
    assert (usage.count("a"), usage.count("b"), usage.count("c")) == (2, 0, 0)


def test_counts_are_kept_and_those_of_other_processes_are_added(tmp_path: Path) -> None:
    path = tmp_path / "state" / "tool_usage.json"
    one, other = ToolUsage(path), ToolUsage(path)
    one.note_call(record("a"))
    other.note_call(record("a"))
    other.note_call(record("b"))
    one.save()
    other.save()
    other.save()
    again = ToolUsage(path)
    assert (again.count("a"), again.count("b")) == (2, 1)
    assert "secret" not in path.read_text()


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff", b'{"a": "x", "b": 3}'])
def test_a_broken_file_begins_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tool_usage.json"
    path.write_bytes(content)
    usage = ToolUsage(path)
    usage.note_call(record("a"))
    usage.save()
    assert ToolUsage(path).count("a") == 1


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    usage = ToolUsage(tmp_path / "file" / "tool_usage.json")
    usage.note_call(record("a"))
    usage.save()
    assert usage.count("a") == 1


def test_calls_of_many_threads_are_all_counted() -> None:
    usage = ToolUsage()

    def work() -> None:
        for _ in range(200):
            usage.note_call(record("a"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert usage.count("a") == 1600
