"""The doctor: every problem is seen, names what mends it, and what is safe is repaired."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from command_line import run
from consistency import disagreements
from folders import many_sections, write

from localmcp import config
from localmcp.config import load_settings
from localmcp.doctor.backups import repair
from localmcp.doctor.examination import Check, run_checks, synced_by
from localmcp.errors import FileUnavailable
from localmcp.files import scratch_folder
from localmcp.index.search import SearchRequest
from localmcp.workspace import Workspace, open_workspace

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    write(tmp_path / "docs" / "bees.md", "# Bees\n\nA hive has one queen, who is fed by the workers all year.\n")
    write(tmp_path / "docs" / "many.md", many_sections(20))
    with open_workspace(tmp_path / "library.localmcp", model="hash:64") as workspace:
        workspace.library.add_paths([tmp_path / "docs"])
        yield workspace


def problems(of: Workspace) -> dict[str, Check]:
    return {each.name: each for each in run_checks(of) if each.status != "ok"}


def change(workspace: Workspace, *statements: str) -> None:
    with workspace.database.write() as connection:
        for sql in statements:
            connection.execute(sql)


# ---------------------------------------------------------------- a sound file, none, and one that cannot be opened


def test_a_sound_file_has_no_problems_every_part_is_looked_at_and_nothing_is_written(workspace: Workspace) -> None:
    workspace.database.close()
    before = workspace.database.path.read_bytes()
    checks = run_checks(workspace.settings)
    assert workspace.database.path.read_bytes() == before
    assert [each for each in checks if each.status != "ok"] == []
    seen = {each.name for each in checks}
    assert {"python", "sqlite", "integrity", "indexes", "vectors", "model", "disk"} <= seen
    assert {"folder", "freshness", "config", "clients", "writing", "holds", "file"} <= seen
    assert repair(workspace.database)[0] is None
    assert not list(workspace.database.path.parent.glob("*before-repair*")), "nothing was to be made again"


def test_looking_makes_no_file_and_says_how_to_begin(tmp_path: Path) -> None:
    path = tmp_path / "none" / "library.localmcp"
    checks = {each.name: each for each in run_checks(load_settings(database=path, model="hash"))}
    assert (checks["file"].status, checks["file"].fix) == ("warn", "localmcp add FOLDER")
    assert not path.parent.exists()


@pytest.mark.parametrize("content", [b"", b"garbage" * 500, b"SQLite format 3\0" + bytes(5000)])
def test_a_file_that_cannot_be_opened_is_told_and_everything_else_is_still_looked_at(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "broken.localmcp"
    path.write_bytes(content)
    checks = run_checks(load_settings(database=path, model="hash"))
    assert any(each.status == "fail" for each in checks)
    assert any(each.name == "config" for each in checks)
    assert path.read_bytes() == content


def test_a_file_of_a_newer_localmcp_is_told_and_left_alone(workspace: Workspace) -> None:
    workspace.database.close()
    data = bytearray(workspace.database.path.read_bytes())
    data[60:64] = (999).to_bytes(4, "big")
    workspace.database.path.write_bytes(data)
    fails = [each for each in run_checks(workspace.settings) if each.status == "fail"]
    assert any("newer localmcp" in each.says and "upgrade" in each.fix for each in fails)


def overwrite_pages(workspace: Workspace, table: str) -> None:
    path = workspace.database.path
    workspace.close()
    with closing(sqlite3.connect(path)) as plain:
        plain.execute("pragma wal_checkpoint(truncate)")
        pages = [row[0] for row in plain.execute("select pageno from dbstat where name = ?", (table,))]
    data = bytearray(path.read_bytes())
    for page in pages:
        data[8192 * (page - 1) : 8192 * page] = b"\xff" * 8192
    path.write_bytes(data)


@pytest.mark.parametrize("table", ["words", "chunks_fts_data", "vectors", "signs", "calls"])
def test_a_table_whose_pages_cannot_be_read_is_named_and_made_anew(table: str, workspace: Workspace) -> None:
    overwrite_pages(workspace, table)
    damage = next(each for each in run_checks(workspace.settings) if each.status == "fail")
    assert (damage.name, damage.fix) == ("integrity", "localmcp doctor --fix")
    assert f"'{table.removesuffix('_data')}'" in damage.says
    repair(workspace.database)
    workspace.library.refresh()
    assert problems(workspace) == {}
    assert workspace.index.search(SearchRequest("who feeds the queen of the hive")).hits[0].passage.title == "Bees"


def test_a_damaged_table_of_documents_is_named_with_the_way_back(workspace: Workspace) -> None:
    overwrite_pages(workspace, "sources")
    damage = next(each for each in run_checks(workspace.settings) if each.status == "fail")
    assert "'sources'" in damage.says
    assert damage.fix.startswith("localmcp restore BACKUP")
    with pytest.raises(FileUnavailable, match="sources"):
        repair(workspace.database)


def test_a_file_from_elsewhere_is_to_be_adopted(workspace: Workspace, own_directories: Path) -> None:
    change(workspace, "delete from signs", "update roots set path = '//host/share'", "update ledger set size = 1")
    workspace.database.close()
    for each in (own_directories / "state" / "files").iterdir():
        each.unlink()
    found = problems(workspace)
    assert found["writing"].fix.startswith("localmcp adopt")
    assert found["indexes"].fix == "", "no command changes it before that"
    assert "freshness" not in found, "the places that it names are not looked at"


# ---------------------------------------------------------------- what --fix mends

DAMAGE = {
    "an index without a passage": ("indexes", ["delete from chunks_fts where rowid = (select min(id) from chunks)"]),
    "an index with a passage too many": ("indexes", ["insert into chunks_fts (rowid, text) values (99999, 'spare')"]),
    "missing sign codes": ("indexes", ["delete from signs"]),
    "wrong sign codes": ("indexes", ["update signs set bits = zeroblob(length(bits))"]),
    "a vector of no passage": ("indexes", ["insert into vectors values ((1 << 40) | 99999, zeroblob(256))"]),
    "a vector of the wrong length": ("indexes", ["update vectors set embedding = zeroblob(8) where id & 1 = 1"]),
    "words that nothing has": ("indexes", ["insert into words values (1, 'zero', 0)"]),
    "wrong sizes of groups": ("indexes", ["update groups set chunks = chunks + 1"]),
}


def test_what_is_made_from_the_documents_is_made_again_after_a_copy(workspace: Workspace) -> None:
    for damage, (name, statements) in DAMAGE.items():
        change(workspace, *statements)
        assert problems(workspace)[name].fix == "localmcp doctor --fix", damage
        copy, _ = repair(workspace.database)
        assert copy is not None and copy.exists(), damage
        copy.unlink()
        workspace.library.refresh()
        assert disagreements(workspace.database) == [], damage
        assert problems(workspace) == {}, damage
        hits = workspace.index.search(SearchRequest("who feeds the queen of the hive")).hits
        assert hits[0].passage.title == "Bees", damage


def test_a_damaged_index_of_quick_starts_is_made_again(workspace: Workspace) -> None:
    guide = {"kind": "QuickStarts", "metadata": {"name": "hive"}, "spec": {"introduction": "Wear a veil of gauze."}}
    workspace.quickstarts.import_quickstarts(text=json.dumps(guide), format="json")
    workspace.database.close()
    with closing(sqlite3.connect(workspace.database.path)) as plain, plain:
        plain.execute("update quickstarts_fts_data set block = x'00' where id > 10")
    assert problems(workspace)["integrity"].fix == "localmcp doctor --fix"
    repair(workspace.database)
    assert problems(workspace) == {}
    with workspace.database.read() as connection:
        sql = "select rowid from quickstarts_fts where quickstarts_fts match 'gauz'"
        assert connection.execute(sql).get == 1


def test_a_scratch_folder_stays_as_long_as_its_process_works_in_it(workspace: Workspace) -> None:
    place = workspace.database.path.parent
    with scratch_folder(place) as scratch:
        os.utime(scratch, (1, 1))
        repair(workspace.database)
        assert scratch.exists()
    left_behind = place / scratch.name
    left_behind.mkdir()
    os.utime(left_behind, (1, 1))
    assert "left behind" in problems(workspace)
    repair(workspace.database)
    assert problems(workspace) == {} and not left_behind.exists()


# ---------------------------------------------------------------- what it cannot mend, but names


def test_passages_without_vectors_and_files_that_changed_name_the_refresh(workspace: Workspace, tmp_path: Path) -> None:
    queue = "insert into vector_queue select id, 1, stop - start from chunks"
    change(workspace, "delete from vectors", "delete from signs", queue)
    write(tmp_path / "docs" / "bees.md", "# Bees\n\nThey dance.\n")
    found = problems(workspace)
    assert found["vectors"].fix == found["freshness"].fix == "localmcp refresh"


def test_documents_of_a_dropped_collection_are_not_looked_at(workspace: Workspace, tmp_path: Path) -> None:
    workspace.records.drop_collection("default", confirm=True)
    write(tmp_path / "docs" / "bees.md", "# Bees\n\nThey dance.\n")
    assert "freshness" not in problems(workspace)
    assert any(check.says == "0 documents in 0 passages" for check in run_checks(workspace))


def test_each_model_in_the_file_says_how_its_cosines_are_read(workspace: Workspace) -> None:
    read = [each.says for each in run_checks(workspace.settings) if each.name == "calibration"]
    assert read == ["hash: 0 + 1 x cosine; does not find answers in other languages"]
    with workspace.database.write() as connection:
        connection.execute("update models set calibration = '[3]'")
    assert "hash is not measured yet" in "".join(each.says for each in run_checks(workspace.settings))


def test_another_model_than_the_files_names_the_setting_and_the_reembed_and_one_that_is_not_there_is_told(
    workspace: Workspace, tmp_path: Path
) -> None:
    path = workspace.database.path
    found = {each.name: each for each in run_checks(load_settings(database=path, model="hash:128")) if each.fix}
    assert found["model"].status == "warn"
    assert "localmcp config set model hash:64" in found["model"].fix and "localmcp reembed" in found["model"].fix
    settings = load_settings(database=path, model=f"folder:{tmp_path}/none")
    assert any(each.name == "model" and each.status == "fail" for each in run_checks(settings))


def test_a_synchronized_folder_is_known_by_its_name(tmp_path: Path) -> None:
    for folder, who in {
        "Dropbox/notes": "Dropbox", "OneDrive - Contoso/notes": "OneDrive", "Google Drive/My Drive": "Google Drive",
        "Library/Mobile Documents/com~apple~CloudDocs": "iCloud Drive", "notes/boxes": None, "dropboxes": None,
        "Library/CloudStorage/GoogleDrive-me": "Google Drive",
    }.items():  # fmt: skip
        assert synced_by(tmp_path / folder / "main.localmcp") == who


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="needs a folder that may not be written")
def test_a_write_protected_folder_is_told(workspace: Workspace) -> None:
    folder = workspace.database.path.parent
    folder.chmod(0o500)
    try:
        assert "write-protected" in problems(workspace)["writing"].says
    finally:
        folder.chmod(0o700)


# ---------------------------------------------------------------- configuration


def test_mistakes_in_the_settings_have_their_line_and_the_nearest_key(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(config.config_file(), 'model = "hash:64"\n\ncolection = "x"\nmax_file_mb = "many"\n')
    code, out, _ = run(capsys, "--db", str(workspace.database.path), "--json", "doctor")
    says = [each["says"] for each in json.loads(out)["checks"] if each["name"] == "config"]
    assert code == 1
    assert any(f"{file}:3" in each and "Did you mean 'collection'" in each for each in says)
    assert any(f"{file}:4" in each and "whole number" in each for each in says)
    write(config.config_file(), "model = \n")
    assert run(capsys, "doctor")[0] == 1


def test_mistakes_in_the_other_files_are_told_with_their_line(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = config.config_directory()
    profiles = '[quiet]\ntools = ["search", "serach"]\ncollections = ["nots"]\n\n[odd]\nrihgts = "read"\n'
    write(folder / "profiles.toml", profiles)
    write(folder / "mcp.json", '{"mcpServers": {\n "a": {},\n "b": {"command": "no-such-program-xyz"}}}')
    write(folder / "tools" / "bad.toml", 'kind = "command"\nname = "bad"\nprogramm = "ls"\n')
    code, out, _ = run(capsys, "--db", str(workspace.database.path), "--json", "doctor")
    told: dict[tuple[str, str], str] = {}
    for each in json.loads(out)["checks"]:
        told[each["name"], each["status"]] = told.get((each["name"], each["status"]), "") + each["says"] + "\n"
    assert code == 1
    assert "profiles.toml:5" in told["config", "fail"] and "rihgts" in told["config", "fail"]
    for sentence in ("profiles.toml:1", "Unknown tool: serach. Did you mean 'search'?", "No collection 'nots'."):
        assert sentence in told["config", "warn"]
    assert "mcp.json:2" in told["mcp servers", "fail"]
    assert "no-such-program-xyz" in told["mcp servers", "warn"]
    assert "bad.toml" in told["tools", "fail"]


def test_a_file_of_servers_that_cannot_be_read_fails(workspace: Workspace) -> None:
    write(config.config_directory() / "mcp.json", "{broken")
    [told] = [each for each in run_checks(workspace) if each.name == "mcp servers"]
    assert told.status == "fail" and "mcp.json cannot be read" in told.says


def test_what_a_file_says_cannot_control_the_terminal(workspace: Workspace) -> None:
    folder = config.config_directory()
    write(folder / "tools" / "bad.toml", 'kind = "command"\nname = "bad\\u001b[2J\\u202e"\nprogramm = "ls"\n')
    write(folder / "mcp.json", '{"mcpServers": {"a\\u001b[31m": {}}}')
    assert not {"\x1b", "\u202e"} & set("".join(each.says + each.fix for each in run_checks(workspace)))


def test_clients_that_start_localmcp_are_found(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    entry = {"command": str(tmp_path / "gone" / "localmcp"), "args": ["serve", "--db", str(tmp_path / "none.localmcp")]}
    write(tmp_path / ".claude.json", json.dumps({"mcpServers": {"docs": entry}}))
    clients = [each for each in run_checks(workspace) if each.name == "clients"]
    assert any(each.status == "ok" and "Claude Code" in each.says for each in clients)
    assert any(each.status == "fail" and "not there" in each.says for each in clients)
    assert any(each.status == "warn" and "does not exist yet" in each.says for each in clients)


# ---------------------------------------------------------------- the command, and the terminal house


def test_the_command_ends_with_1_when_something_fails_and_with_0_when_it_is_repaired(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALMCP_MODEL", "hash:64")
    path = str(workspace.database.path)
    assert run(capsys, "--db", path, "doctor")[0] == 0
    change(workspace, "delete from signs")
    code, out, _ = run(capsys, "--db", path, "doctor")
    assert code == 1 and "doctor --fix" in out
    code, out, said = run(capsys, "--db", path, "doctor", "--fix")
    assert code == 0 and "sign codes again" in said
    code, out, _ = run(capsys, "--db", path, "doctor", "--fix", "--json")
    assert json.loads(out)["repaired"] == {"backup": None, "done": []}
