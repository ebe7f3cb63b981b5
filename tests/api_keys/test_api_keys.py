"""API keys: shown once, found by their beginning, and worth exactly what their row says at this moment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from command_line import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import localmcp
from localmcp import api_keys as keyring
from localmcp.api_keys import BCRYPT_COST, ApiKeys, KeyInfo
from localmcp.errors import AccessDenied, InvalidInput, NotFound
from localmcp.storage.database import Database, fetch_one
from localmcp.tools import Scope, use_scope
from localmcp.workspace import Workspace

ROOT = Path(__file__).parents[2]


@pytest.fixture
def keys(database: Database) -> Iterator[ApiKeys]:
    keys = ApiKeys(database)
    yield keys
    keys.close()


@pytest.fixture
def shipped_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are hashed as everywhere but in the other tests."""
    monkeypatch.setattr(keyring, "BCRYPT_COST", BCRYPT_COST)


@pytest.fixture
def notes(database: Database) -> Database:
    """A file with the collections `notes` and `work`."""
    with database.write() as connection:
        connection.execute("insert into collections (name, created_at) values ('notes', ''), ('work', '')")
    return database


def change(database: Database, sql: str, *bindings: Any) -> None:
    with database.write() as connection:
        connection.execute(sql, bindings)


def in_words(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


# ---------------------------------------------------------------- making


@pytest.mark.usefixtures("shipped_cost")
def test_a_key_is_mcp_and_32_letters_and_only_its_hash_is_in_the_file(database: Database, keys: ApiKeys) -> None:
    made = keys.create(name="editor")
    assert re.fullmatch(r"mcp_[A-Za-z0-9]{32}", made.key)
    with database.read() as connection:
        stored = fetch_one(connection, "select key_hash from api_keys")
    assert stored.startswith("$2b$10$")
    database.close()
    assert made.key.encode() not in database.path.read_bytes()
    assert made.key not in repr(made)


@pytest.mark.parametrize(
    ("scope", "rights"),
    [("read", {"read"}), ("write", {"read", "write"}), ("admin", {"read", "write", "admin"})],
)
def test_each_scope_implies_the_ones_before_it(keys: ApiKeys, scope: str, rights: set[str]) -> None:
    made = keys.create(scopes=[scope])
    assert keys.verify(made.key).scope() == Scope(caller=made.info.id, trusted=False, rights=frozenset(rights))


def test_a_key_opens_the_collections_tools_and_providers_it_was_made_for(notes: Database, keys: ApiKeys) -> None:
    made = keys.create(collections=["NOTES"], tools=["search"], providers=["commands", "mcp:github"])
    assert keys.verify(made.key).scope() == Scope(
        caller=made.info.id,
        trusted=False,
        collections=frozenset({"notes"}),
        tools=frozenset({"search"}),
        provider_names=frozenset({"commands", "mcp:github"}),
        rights=frozenset({"read"}),
    )


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"scopes": []}, "scopes: name at least one, in a list"),
        ({"scopes": ["root"]}, 'scopes: "root" is no scope; use read, write or admin'),
        ({"scopes": [{}]}, "scopes: {} is no scope"),
        ({"name": "a\x00b"}, "name: .* cannot be a name"),
        ({"name": "x" * 101}, "name: .* cannot be a name"),
        ({"tools": []}, "tools: name at least one, in a list"),
        ({"tools": "search"}, "tools: name at least one, in a list"),
        ({"tools": ["a b"]}, "tools: .* cannot be a name"),
        ({"providers": ["../x"]}, "providers: .* cannot be a name"),
        ({"collections": []}, "collections: name at least one"),
        ({"collections": "notes"}, "collections: name at least one"),
        ({"expires_at": "tomorrow"}, "expires_at: .* is no date"),
        ({"expires_at": 5}, "expires_at: 5 is no date"),
        ({"expires_at": "2020-01-01"}, "expires_at: 2020-01-01 has passed"),
        ({"expires_at": "0001-01-01T00:00+14:00"}, "expires_at: .* is no date"),
    ],
)
def test_what_cannot_be_used_is_named(keys: ApiKeys, given_: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        keys.create(**given_)
    assert keys.list() == []


# ---------------------------------------------------------------- verifying


def test_the_whole_key_opens_and_notes_its_use(keys: ApiKeys) -> None:
    made = keys.create(name="editor")
    for _ in range(3):
        assert keys.verify(made.key).name == "editor"
    [info] = keys.list()
    assert info.uses == 3
    assert info.last_used_at is not None
    assert info.last_used_at >= info.created_at


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(max_size=200))
def test_what_is_no_key_is_refused_whatever_it_is(keys: ApiKeys, text: str) -> None:
    with pytest.raises(AccessDenied):
        keys.verify(text)


@pytest.mark.usefixtures("shipped_cost")
def test_an_unknown_key_costs_as_much_as_one_with_a_known_beginning(
    keys: ApiKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = keys.create()
    checks: list[bytes] = []
    check = bcrypt.checkpw
    monkeypatch.setattr(bcrypt, "checkpw", lambda key, hashed: checks.append(hashed) or check(key, hashed))
    for wrong in ("mcp_" + "0" * 32, made.key[:12] + "0" * 24):
        with pytest.raises(AccessDenied):
            keys.verify(wrong)
    assert [each[:7] for each in checks] == [b"$2b$10$"] * 2


@pytest.mark.parametrize("word", ["revoke", "delete"])
def test_a_revoke_through_another_connection_counts_at_once(database: Database, keys: ApiKeys, word: str) -> None:
    made = keys.create()
    keys.verify(made.key)
    other = ApiKeys(Database(database.path))
    getattr(other, word)(made.info.id)
    with pytest.raises(AccessDenied, match="revoked" if word == "revoke" else "Invalid"):
        keys.verify(made.key)
    assert [each.status for each in keys.list()] == (["revoked"] if word == "revoke" else [])
    other.close()


def test_a_key_ends_when_it_expires(database: Database, keys: ApiKeys) -> None:
    made = keys.create(expires_at=in_words(3600))
    assert keys.verify(made.key).status == "active"
    change(database, "update api_keys set expires_at = ?", in_words(-1))
    with pytest.raises(AccessDenied, match="expired"):
        keys.verify(made.key)
    assert keys.list()[0].status == "expired"


@pytest.mark.parametrize(
    "sql",
    [
        "update collections set name = 'diary' where name = 'notes'",
        "delete from collections where name = 'notes'",
        "update collections set name = 'notes' || id; update collections set name = 'notes' where name like '%2'",
    ],
    ids=["renamed", "dropped", "its name taken over"],
)
def test_a_key_sees_nothing_when_its_collection_has_gone(notes: Database, keys: ApiKeys, sql: str) -> None:
    made = keys.create(collections=["notes"])
    keys.verify(made.key)
    change(notes, sql)
    info = keys.verify(made.key)
    assert info.scope().collections == frozenset()
    assert info.as_json()["collections"] == ()


@pytest.mark.parametrize("column", ["collections", "tools", "providers", "scopes", "expires_at", "key_hash"])
def test_a_row_that_cannot_be_read_opens_nothing(database: Database, keys: ApiKeys, column: str) -> None:
    made = keys.create()
    for value in ("", "null", "{", '{"a": 1}', "[1, {}, [], null]", '[{"id": [], "name": {}}]'):
        change(database, f"update api_keys set {column} = ?", value)
        if column in ("expires_at", "key_hash"):
            with pytest.raises(AccessDenied):
                keys.verify(made.key)
            continue
        scope = keys.verify(made.key).scope()
        opened = {"collections": scope.collections, "tools": scope.tools, "providers": scope.provider_names}
        assert {**opened, "scopes": scope.rights}[column] == frozenset()


def test_keys_in_a_file_from_elsewhere_open_nothing(database: Database, own_directories: Path) -> None:
    keys = ApiKeys(database)
    made = keys.create(scopes=["admin"])
    keys.close()
    database.close()
    for known in (own_directories / "state" / "files").iterdir():
        known.unlink()
    with pytest.raises(AccessDenied):
        ApiKeys(Database(database.path)).verify(made.key)


def test_asking_for_keys_makes_no_file(database: Database, keys: ApiKeys) -> None:
    with pytest.raises(AccessDenied):
        keys.verify("mcp_" + "0" * 32)
    with pytest.raises(NotFound):
        keys.revoke("x")
    assert keys.list() == []
    assert not database.path.exists()


# ---------------------------------------------------------------- finding and listing


def test_a_key_is_found_by_id_beginning_whole_or_name(keys: ApiKeys) -> None:
    made, _ = keys.create(name="editor"), keys.create(name="twin")
    keys.create(name="twin")
    for text in (made.info.id, made.key, made.info.prefix, "editor"):
        assert keys.find(text).id == made.info.id
    with pytest.raises(InvalidInput, match="2 API keys are called 'twin'"):
        keys.find("twin")
    with pytest.raises(NotFound) as failed:
        keys.find("mcp_" + "0" * 32)
    assert "0" * 9 not in str(failed.value)


# ---------------------------------------------------------------- a key that manages keys


@pytest.mark.parametrize(
    "limits",
    [
        {"scopes": ["write"]},
        {"scopes": ["admin"], "collections": ["notes"]},
        {"scopes": ["admin"], "tools": ["search"]},
        {"scopes": ["admin"], "providers": ["commands"]},
    ],
)
def test_only_an_admin_that_is_bound_to_nothing_manages_keys(
    notes: Database, keys: ApiKeys, limits: dict[str, Any]
) -> None:
    made = keys.create(**limits)
    with use_scope(made.info.scope()):
        for attempt in (keys.create, keys.list, lambda: keys.revoke(made.info.id), lambda: keys.delete(made.info.id)):
            with pytest.raises(AccessDenied, match="admin key"):
                attempt()
    assert keys.list()[0].is_active


def test_an_admin_that_ends_makes_only_keys_that_end_no_later(keys: ApiKeys) -> None:
    boss = keys.create(scopes=["admin"], expires_at="2099-01-01")
    with use_scope(boss.info.scope()):
        assert keys.create(expires_at="2098-12-31").info.expires_at == "2098-12-31T00:00:00.000Z"
        for later in (None, "2099-01-02"):
            assert keys.create(expires_at=later).info.expires_at == boss.info.expires_at


# ---------------------------------------------------------------- in a workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with localmcp.open(tmp_path / "a.localmcp", model="hash") as workspace:
        workspace.library.add_text("Roses are pruned in late winter.", "Roses", collection="garden")
        workspace.library.add_text("Bees keep one queen.", "Bees", collection="animals")
        yield workspace


def test_a_key_sees_the_rules_only_if_it_is_bound_to_them_and_is_told_so(workspace: Workspace) -> None:
    workspace.registry.call("addRule", {"rule_text": "Prune roses before spring."})

    def rules(info: KeyInfo) -> tuple[list[Any], str]:
        scope = replace(info.scope(), lean=True)
        task = {"taskDescription": "prune roses before spring", "similarityThreshold": -1}
        answer = workspace.registry.call("getRelevantRules", task, scope)
        return answer.value["rules"], answer.text

    found, text = rules(workspace.api_keys.create(collections=["garden"]).info)
    assert found == [] and "--collection rules" in text
    found, text = rules(workspace.api_keys.create(collections=["garden", "rules"]).info)
    assert len(found) == 1 and "--collection rules" not in text


# ---------------------------------------------------------------- the command line


@pytest.fixture
def cli(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `localmcp` on the workspace's file."""
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    return partial(run, capsys, "--db", str(workspace.database.path))


def test_create_prints_the_key_alone_on_stdout(workspace: Workspace, cli: Any) -> None:
    code, out, err = cli("keys", "create", "--name", "editor", "--expires", "90d", "-c", "garden", "-c", "animals")
    assert code == 0
    info = workspace.api_keys.verify(out.strip())
    assert (info.name, info.scopes, info.collections) == ("editor", ("read",), ("garden", "animals"))
    assert info.expires_at is not None
    assert timedelta(days=89) < datetime.fromisoformat(info.expires_at) - datetime.now(UTC) < timedelta(days=91)
    assert "It will not be shown again" in err
    assert out.strip() not in err


def test_list_tells_what_each_key_opens_and_how_it_was_used(workspace: Workspace, cli: Any) -> None:
    made = workspace.api_keys.create(name="editor", collections=["garden"])
    scope = workspace.api_keys.verify(made.key).scope()
    workspace.registry.call("get_stats", {}, scope)
    with pytest.raises(InvalidInput):
        workspace.registry.call("search", {"query": 5}, scope)
    workspace.activity.flush()
    workspace.api_keys.list()
    [key] = cli("keys", "list", "--json").json["keys"]
    assert key.items() >= {"name": "editor", "uses": 1, "calls": 2, "errors": 1, "errorRate": 0.5}.items()
    assert "apiKey" not in key
    _, out, _ = cli("keys", "list", "--collection", "garden")
    assert "editor" in out
    assert "0.5" in out
    assert made.key not in out


@pytest.mark.parametrize(("word", "left"), [("revoke", ["revoked"]), ("delete", [])])
def test_revoke_and_delete_take_the_key_itself_too(workspace: Workspace, cli: Any, word: str, left: list[str]) -> None:
    made = workspace.api_keys.create(name="editor")
    code, out, _ = cli("keys", word, made.key, "--json")
    assert (code, json.loads(out)["message"]) == (0, f"API key {word.rstrip('e')}ed successfully")
    assert [each.status for each in workspace.api_keys.list()] == left


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("create", "--tools", "serch"), 2, "Did you mean 'search'"),
        (("create", "-c", ""), 1, "collection"),
        (("revoke", "nobody"), 1, "No API key 'nobody'"),
    ],
)
def test_mistakes_are_told(cli: Any, arguments: tuple[str, ...], code: int, said: str) -> None:
    ended, out, err = cli("keys", *arguments)
    assert (ended, out) == (code, "")
    assert said in err
