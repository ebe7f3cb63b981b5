"""Packs: what goes in, what never does, how they open elsewhere, and what `verify` sees."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from command_line import run_here as cli
from given_files import change

from localmcp.config import Settings, state_directory
from localmcp.files import scratch_folder
from localmcp.packs.pack import OF_COLLECTIONS, OF_THE_FILE, VECTORS, verify, write_pack
from localmcp.storage.connections import connect
from localmcp.storage.database import Database, fetch_all, fetch_one
from localmcp.storage.schema import adopt_file, expected_schema
from localmcp.tools import Scope
from localmcp.workspace import Workspace

pytestmark = pytest.mark.usefixtures("in_process")

ROOT = Path(__file__).parents[2]
PERSON = Scope(caller="cli")
METADATA = {"keep": "/api/users", "home": [f"file://{Path.home()}/x.md", str(Path.home())]}
PLANTED = (
    b"plantedsecret", b"plantedtrash", b"plantedquery", b"plantedelsewhere", b"plantedfolder", b"plantedsaid",
    b"plantedretired", b"plantedguide", b"plantedmetadata", b"plantedtable", b"plantedjob",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of notes below one whose name nobody should learn."""
    folder = tmp_path_factory.mktemp("packs") / "plantedfolder" / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "bees.md").write_text("# Bees\n\nA hive has one queen.\n", encoding="utf-8")
    (folder / "deep" / "bees.md").write_text("# More bees\n\nDrones do not work.\n", encoding="utf-8")
    (folder / "gone.md").write_text("# Gone\n\nThe plantedtrash was thrown away.\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def lived_in(folder: Path) -> Path:
    """A lived-in file with something private in every corner."""
    path = folder.parents[1] / "full.localmcp"
    with Workspace(Settings(database=path, model="hash")) as workspace:
        workspace.library.add_paths([folder])
        workspace.library.add_text("The plantedelsewhere stands here.", "Other", collection="other")
        place = str(folder / "bees.md")
        workspace.library.add_text("A text with a place.", "Placed", metadata=METADATA | {"was": f"in {place}"})
        workspace.library.remove([str(folder / "gone.md")])
        workspace.registry.call("search", {"query": "plantedquery"}, PERSON)
        workspace.api_keys.create(name="plantedsecret", scopes=("read",))
        guides = [
            {"metadata": {"name": name}, "spec": {"displayName": title, "description": "Honey", "tasks": []}}
            for name, title in (("keep", "Keep bees"), ("old", "plantedguide"))
        ]
        workspace.registry.call("importQuickstarts", {"text": json.dumps(guides), "format": "json"}, PERSON)
        workspace.registry.call("removeQuickstart", {"names": ["old"]}, PERSON)
        for text in ("Name tests as sentences.", "Forget the plantedretired."):
            workspace.registry.call("addRule", {"rule_text": text, "category": "testing"}, PERSON)
        with workspace.database.write() as connection:
            connection.execute("""
                update user_instructions set instruction = 'plantedsaid', origin = '/home/plantedsaid/CLAUDE.md';
                update rules set retired_at = '2026-01-01' where rule_text like '%plantedretired%';
                insert into rule_uses (rule_id, occasion, task, useful, used_at)
                    select id, 'o', 'plantedsaid', 1, '' from rules;
                insert into jobs (id, total, started_at, heartbeat_at) values ('plantedjob', 1, '', '');
                create table plantedtable (note text);
                insert into plantedtable values ('plantedtable');
                create index plantedtable_index on plantedtable (note);
            """)
    return path


@pytest.fixture
def full(lived_in: Path, tmp_path: Path) -> Path:
    """A copy that this machine takes for its own."""
    path = Path(shutil.copy(lived_in, tmp_path / "full.localmcp"))
    with closing(apsw.Connection(str(path))) as connection:
        adopt_file(fetch_one(connection, "select id from file"))
    return path


@pytest.fixture(scope="module")
def packed_once(lived_in: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("packed") / "out.localmcp"
    with closing(apsw.Connection(str(lived_in))) as connection:
        adopt_file(fetch_one(connection, "select id from file"))
    return pack(lived_in, target)


def pack(path: Path, target: Path, **options: Any) -> Path:
    database = Database(path)
    write_pack(database, target, **options)
    database.close()
    return target


# ---------------------------------------------------------------- what is in a pack


def test_nothing_private_is_in_the_bytes_of_a_pack(full: Path, tmp_path: Path) -> None:
    bytes_before = full.read_bytes()
    assert all(each in bytes_before for each in PLANTED if each not in (b"plantedmetadata", b"plantedquery"))
    data = pack(full, tmp_path / "out.localmcp", collections=("default",)).read_bytes()
    assert [each for each in PLANTED if each in data] == []
    # The keyword index holds stems, and numbers of chunks that are gone.
    assert b"planted" not in data
    assert b"hive" in data


def test_a_whole_pack_holds_every_collection_but_no_private_row_and_no_table_of_a_person(
    full: Path, tmp_path: Path
) -> None:
    packed = pack(full, tmp_path / "out.localmcp")
    assert [each for each in PLANTED if each in packed.read_bytes()] == [b"plantedelsewhere"]
    connection = connect(packed)
    private = ("api_keys", "calls", "jobs", "ledger", "roots", "rule_uses")  # fmt: skip
    assert {name: fetch_one(connection, f"select count(*) from {name}") for name in private} == dict.fromkeys(
        private, 0
    )
    names = {(kind, name) for kind, name in fetch_all(connection, "select type, name from sqlite_schema")}
    assert names <= set(expected_schema())
    told = fetch_all(connection, "select instruction, origin from user_instructions")
    assert told == [("Name tests as sentences.", "pack")]
    connection.close()


def test_every_table_is_known_as_one_to_give_away_or_as_a_private_one() -> None:
    private = {"api_keys", "calls", "equal_passages", "jobs", "leases", "ledger", "roots", "rule_uses", "trash"}
    tables = {name for kind, name in expected_schema() if kind == "table" and name != "sqlite_sequence"}
    made = {"file", "manifest", "chunks_fts", "quickstarts_fts"}
    assert tables - made - private == {*OF_COLLECTIONS, *OF_THE_FILE, *VECTORS}


def test_places_are_told_below_the_folder_that_was_added(full: Path, tmp_path: Path) -> None:
    connection = connect(pack(full, tmp_path / "out.localmcp"))
    places = {row[0] for row in fetch_all(connection, "select uri from sources where uri is not null")}
    assert places == {"notes/bees.md", "notes/deep/bees.md"}
    metadata = fetch_one(connection, "select metadata from sources where title = 'Placed'")
    assert json.loads(metadata) == {"was": "in notes/bees.md", "keep": "/api/users", "home": ["~/x.md", "~"]}
    connection.close()


def test_the_manifest_says_what_is_in_it(full: Path, tmp_path: Path) -> None:
    packed = pack(full, tmp_path / "out.localmcp", title="Bees", author="Ada", note="Read me")
    found = verify(packed)
    manifest = found.manifest
    assert manifest is not None
    assert (manifest.title, manifest.author, manifest.note) == ("Bees", "Ada", "Read me")
    assert manifest.counts == {"sources": 4, "chunks": 4, "vectors": 5, "quickstarts": 1, "rules": 1}
    assert [each["name"] for each in manifest.models] == ["hash"]
    assert {each["place"] for each in found.sources} == {"notes/bees.md", "notes/deep/bees.md", None}
    assert all(len(each["sha256"]) == 64 for each in found.sources)


# ---------------------------------------------------------------- refusals


def test_what_a_killed_run_left_is_cleared_away(full: Path, tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as busy:
        left = tmp_path / f"{busy.name}-left"
        left.mkdir()
        # Its lock is held by nobody.
        (left / "lock").touch()
        pack(full, tmp_path / "out.localmcp")
        assert busy.exists() and not left.exists()


def test_a_pack_that_is_killed_leaves_no_private_rows_on_the_disk(full: Path, tmp_path: Path) -> None:
    """The copy that is made smaller has no name: what a kill leaves was cleaned before it was written."""
    seen: list[bytes] = []

    def look(step: str) -> None:
        seen.extend(path.read_bytes() for path in tmp_path.glob(".localmcp-*/*") if path.is_file())

    database = Database(full)
    write_pack(database, tmp_path / "out.localmcp", say=look)
    database.close()
    assert seen and not any(b"SQLite format 3" in content for content in seen)


# ---------------------------------------------------------------- on another machine


def test_a_pack_opens_on_another_machine_without_embedding_anything(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = pack(full, tmp_path / "out.localmcp")
    before = packed.read_bytes()
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    for name in ("STATE", "CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"LOCALMCP_{name}_DIR", str(tmp_path / "other" / name.lower()))
    assert cli("--db", str(packed), "search", "hive queen", "--json") == 0
    hit = json.loads(capsys.readouterr().out)["results"][0]
    assert (hit["citation"]["label"], hit["freshness"], hit["matchType"]) == ("notes/bees.md:3", "unverifiable", "both")
    assert cli("--db", str(packed), "add", str(ROOT / "README.md")) == 3
    assert "adopt" in capsys.readouterr().err
    assert packed.read_bytes() == before


def test_an_adopted_pack_is_an_ordinary_file(full: Path, tmp_path: Path) -> None:
    packed = pack(full, tmp_path / "out.localmcp")
    assert verify(packed).problems == verify(full).problems == []
    assert cli("adopt", str(packed)) == 0
    with Workspace(Settings(database=packed, model="hash")) as workspace:
        workspace.library.add_text("More about wasps.", "Wasps")
    found = verify(packed)
    assert found.sound and found.manifest is None


# ---------------------------------------------------------------- verify


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("update chunks set text = 'X' || substr(text, 2) where id = 1", "digest"),
        ("update sources set title = 'Another' where id = 1", "digest"),
        ("update quickstarts set content = '{}'", "digest"),
        ("update chunks_fts_docsize set sz = sz || x'01'", ""),
        ("delete from vectors where id = (select max(id) from vectors)", "digest"),
        ("update signs set bits = zeroblob(length(bits))", "sign codes"),
        ("delete from chunks_fts_docsize where id = 1", "keyword index"),
        ("update sources set chunk_count = 9 where id = 1", "number of passages"),
        ("delete from chunks where id = 1", "keyword index"),
        ("update manifest set content = '{}'", "manifest"),
        ("update manifest set content = replace(content, 'localmcp 0', 'localmcp 1')", "digest"),
        ("insert into jobs values ('j', 0, 1, '', '')", "digest"),
    ],
)
def test_every_change_to_the_rows_of_a_pack_is_seen(
    packed_once: Path, tmp_path: Path, statement: str, said: str
) -> None:
    packed = Path(shutil.copy(packed_once, tmp_path / "out.localmcp"))
    change(packed, statement)
    found = verify(packed)
    assert not found.sound
    assert said in " ".join(found.problems)


def test_verify_ends_with_1_when_something_is_wrong_and_says_it(
    full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = pack(full, tmp_path / "out.localmcp", title="Bees")
    assert cli("verify", str(packed)) == 0
    assert "sound" in capsys.readouterr().out
    data = bytearray(packed.read_bytes())
    data[5 * 8192 : 5 * 8192 + 3] = b"\xff\xff\xff"
    packed.write_bytes(data)
    assert cli("verify", str(packed), "--json") == 1
    result = json.loads(capsys.readouterr().out)
    assert not result["sound"] and result["problems"]
    assert cli("verify", str(tmp_path / "none")) == 1


@pytest.mark.parametrize("data", [b"", b"text", b"SQLite format 3\0" + bytes(2000)])
def test_a_file_that_is_none_of_ours_is_not_sound(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "other.localmcp"
    path.write_bytes(data)
    assert len(verify(path).problems) == 1


# ---------------------------------------------------------------- the command line


def test_the_command_writes_a_pack_of_some_collections(
    full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.localmcp"
    command = ("--db", str(full), "pack", "-c", "other", "--title", "T", str(target), "--json")
    assert cli(*command) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["manifest"]["collections"] == [{"name": "other", "sources": 1, "chunks": 1}]
    assert result["manifest"]["counts"]["rules"] == 0
    assert cli(*command) == 2
    assert cli(*command, "--force") == 0
    assert state_directory().exists()
