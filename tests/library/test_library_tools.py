"""The library through the registry, as assistants and API callers reach it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from desk import check_promise
from folders import write

from localmcp.config import Settings
from localmcp.errors import AccessDenied, InvalidInput, NotFound
from localmcp.library import library_tools
from localmcp.library.ingest import Library
from localmcp.library.library_tools import LibraryTools
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.storage.database import Database
from localmcp.tools import Registry, Scope

ASSISTANT = Scope(caller="stdio", trusted=False)


class Setting:
    """A registry with the library's tools, called as an assistant calls them."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        open_model: Callable[[], HashEmbedder] = lambda: HashEmbedder(64),
        wait: float = 20,
    ) -> None:
        self.library = Library(database, LazyEmbedder(open_model), settings)
        self.tools = LibraryTools(self.library, wait=wait)
        self.registry = Registry()
        self.registry.add_service(self.tools)

    def call(self, name: str, scope: Scope = ASSISTANT, **arguments: Any) -> dict[str, Any]:
        answer = self.registry.call(name, arguments, scope)
        check_promise(self.registry, name, answer.value)
        return answer.value


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    write(tmp_path / "allowed" / "bees.md", "# Bees\n\nA hive has one queen.\n")
    return write(tmp_path / "allowed" / "roses.md", "# Roses\n\nPrune them.\n").parent


@pytest.fixture
def at(database: Database, allowed: Path) -> Setting:
    return Setting(database, Settings(folders=(allowed,)))


def test_a_document_is_added_once_and_replaced_when_asked(at: Setting) -> None:
    said = {"text": "# Notes\n\nBuy milk.\n", "title": "Shopping", "sourceType": "notion", "metadata": {"by": "me"}}
    first = at.call("add_document", **said)
    assert (first["status"], first["chunksAdded"]) == ("added", 1)
    assert at.call("add_document", **said)["status"] == "unchanged"
    other = {**said, "text": "Buy bread."}
    with pytest.raises(InvalidInput, match="replace: true"):
        at.call("add_document", **other)
    second = at.call("add_document", **other, replace=True)
    assert (second["status"], second["sourceId"]) == ("replaced", first["sourceId"])


def test_a_path_outside_is_refused_and_the_allowed_folders_are_named(
    at: Setting, allowed: Path, tmp_path: Path
) -> None:
    secret = write(tmp_path / "secret.md", "Hush.")
    for path in (str(secret), str(allowed / ".." / "secret.md"), str(tmp_path), str(allowed) + "x", "/nowhere"):
        with pytest.raises(AccessDenied, match="outside the folders") as raised:
            at.call("add_path", path=path)
        assert str(allowed) in str(raised.value) and "restart the client" in str(raised.value)


def test_a_link_does_not_lead_out_of_the_allowed_folders(at: Setting, allowed: Path, tmp_path: Path) -> None:
    write(tmp_path / "secret" / "a.md", "Hush.")
    try:
        (allowed / "link").symlink_to(tmp_path / "secret")
    except OSError:
        pytest.skip("links need a right that this user lacks")
    with pytest.raises(AccessDenied):
        at.call("add_path", path=str(allowed / "link"))
    assert at.call("add_path", path=str(allowed))["indexed"] == 2


def test_a_folder_that_was_added_may_be_added_again(at: Setting, tmp_path: Path) -> None:
    folder = write(tmp_path / "mine" / "a.md", "Mine.").parent
    with pytest.raises(AccessDenied):
        at.call("add_path", path=str(folder))
    at.call("add_path", scope=Scope(caller="cli"), path=str(folder))
    assert at.call("add_path", path=str(folder / "a.md"))["unchanged"] == 1


@pytest.mark.parametrize("is_setting", [True, False], ids=["allowed", "added"])
def test_an_assistant_cannot_add_what_the_folder_leaves_out(
    database: Database, allowed: Path, is_setting: bool
) -> None:
    (allowed / ".localmcpignore").write_text("vault/\n", encoding="utf-8")
    (allowed / ".gitignore").write_text("password.*\n", encoding="utf-8")
    for file in (".env", ".private/diary.md", "vault/key.md", "letters/password.md", "letters/a.md"):
        write(allowed / file, "# Hush\n\nA secret.\n")
    at = Setting(database, Settings(folders=(allowed,) if is_setting else ()))
    at.call("add_path", scope=Scope(caller="cli"), path=str(allowed))
    left_out = {
        ".env": "hidden file",
        ".private/diary.md": "hidden folder",
        "vault/key.md": "ignored by .localmcpignore: vault/",
        "vault": "ignored by .localmcpignore: vault/",
        "letters/password.md": r"ignored by .gitignore: password\.\*",
    }
    for name, reason in left_out.items():
        with pytest.raises(AccessDenied, match=reason):
            at.call("add_path", path=str(allowed / name))
    assert at.call("add_path", path=str(allowed / "letters"), collection="other")["indexed"] == 1
    for name in left_out:
        # The person may.
        at.call("add_path", scope=Scope(caller="cli"), path=str(allowed / name))


def test_the_ignore_file_of_a_watched_folder_above_counts_for_a_caller_who_does_not_see_its_collection(
    database: Database, tmp_path: Path
) -> None:
    inner = write(tmp_path / "outer" / "inner" / "a.md", "# Bees\n").parent
    (inner.parent / ".localmcpignore").write_text("diary.md\n", encoding="utf-8")
    at = Setting(database, Settings())
    at.call("add_path", scope=Scope(caller="cli"), path=str(inner.parent), collection="private")
    at.call("add_path", scope=Scope(caller="cli"), path=str(inner))
    (inner / "diary.md").write_text("# Hush\n", encoding="utf-8")
    narrow = Scope(caller="key-1", trusted=False, collections=frozenset(["default"]))
    with pytest.raises(AccessDenied, match="ignored by .*diary"):
        at.call("add_path", scope=narrow, path=str(inner / "diary.md"))
    with pytest.raises(AccessDenied) as outside:
        at.call("add_path", scope=narrow, path=str(inner.parent / "b.md"))
    assert f"Allowed: {inner}." in str(outside.value)


def test_a_document_is_removed_and_restored(at: Setting) -> None:
    source = at.call("add_document", text="Buy milk.", title="Shopping")["sourceId"]
    item = {"sourceId": source, "title": "Shopping", "path": None}
    assert at.call("remove_source", sourceId=source) == {"removed": 1, "trashDays": 30, "sources": [item]}
    trash = at.call("list_trash")
    assert trash["sources"][0]["sourceId"] == source and "localmcp trash empty" in trash["message"]
    with pytest.raises(NotFound, match="'Shopping' is in the trash already"):
        at.call("remove_source", sourceId="Shopping")
    with pytest.raises(NotFound) as refused:
        at.call("restore_source", sourceId="Beekeeping")
    assert "list_trash" in str(refused.value.hint)
    assert at.call("restore_source", sourceId=source) == {"sourceId": source, "title": "Shopping", "path": None}
    with pytest.raises(NotFound):
        at.call("restore_source", sourceId=source)


def test_a_callers_collections_bound_what_its_tools_reach(at: Setting) -> None:
    source = at.call("add_document", text="Hush.", title="Secret", collection="secret")["sourceId"]
    gone = at.call("add_document", text="Hush!", title="Gone", collection="secret")["sourceId"]
    at.call("remove_source", sourceId=gone)
    narrow = Scope(caller="key-1", trusted=False, collections=frozenset(["default"]))
    for name, arguments in (
        ("remove_source", {"sourceId": source}),
        ("remove_source", {"sourceId": "Secret"}),
        ("restore_source", {"sourceId": gone}),
        ("add_document", {"text": "x", "title": "y", "collection": "secret"}),
        ("refresh", {"collection": "secret"}),
    ):
        with pytest.raises(NotFound):
            at.call(name, scope=narrow, **arguments)


@pytest.fixture
def blocked(database: Database, allowed: Path) -> Iterator[tuple[Setting, threading.Event]]:
    """Tools that answer at once, and what lets the work behind them go on."""
    go_on = threading.Event()

    class Waiting(HashEmbedder):
        def __init__(self) -> None:
            super().__init__(64)
            assert go_on.wait(60)

    at = Setting(database, Settings(folders=(allowed,)), Waiting, wait=0)
    yield at, go_on
    go_on.set()


def test_long_work_is_answered_with_a_job_that_can_be_asked_for(
    blocked: tuple[Setting, threading.Event], allowed: Path
) -> None:
    at, go_on = blocked
    running = [
        at.call("add_path", path=str(allowed)),
        at.call("add_document", text="Buy milk.", title="Shopping"),
        at.call("refresh"),
    ]
    assert [each["status"] for each in running] == ["running"] * 3
    go_on.set()
    ended = [at.call("job_status", jobId=each["jobId"], waitSeconds=20) for each in running]
    assert [(each["kind"], each["status"]) for each in ended] == [
        ("add_path", "done"),
        ("add_document", "done"),
        ("refresh", "done"),
    ]
    assert (ended[0]["result"]["indexed"], ended[1]["result"]["status"]) == (2, "added")


def test_a_cancelled_job_stops_at_the_next_file(blocked: tuple[Setting, threading.Event], allowed: Path) -> None:
    at, go_on = blocked
    job = at.call("add_path", path=str(allowed))["jobId"]
    threading.Timer(0.2, go_on.set).start()
    ended = at.call("cancel_job", jobId=job)
    assert (ended["status"], ended["message"]) == ("cancelled", "Cancelled; what was written so far stays.")
    assert at.call("cancel_job", jobId=job)["status"] == "cancelled"


def test_adding_a_folder_answers_when_its_words_are_in_and_says_what_waits(
    at: Setting, allowed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = at.call("add_path", path=str(allowed))
    assert (answer["status"], answer["indexed"], answer["waiting"]) == ("done", 2, 0)
    monkeypatch.setattr(library_tools, "VECTOR_SECONDS", -1.0)
    (allowed / "leeks.md").write_text("# Leeks\n\nEarth them up.\n", encoding="utf-8")
    answer = at.call("refresh")
    assert (answer["indexed"], answer["waiting"]) == (1, 1)
    assert answer["notices"] == ["1 passage found by words so far; their meaning is read in the background."]
