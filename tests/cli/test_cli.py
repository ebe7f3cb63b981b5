"""The command line: what is typed, what is printed where, and with which exit code the process ends."""

import json
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from command_line import GARDEN, POSIX, ROOT, Terminal, spawn

from localmcp import config, humanize
from localmcp.cli.program import MODULES

# ---------------------------------------------------------------- the program


def test_the_list_of_commands_imports_nothing_heavy_and_no_command() -> None:
    code = (
        "import sys\ntry:\n from localmcp.cli.program import run; run(['--help'])\nfinally:\n"
        " print(sorted({n for n in sys.modules if n.startswith('localmcp.cli.')}), file=sys.stderr)\n"
        " print({n.split('.')[0] for n in sys.modules} & {'pydantic', 'numpy', 'apsw', 'rich', 'platformdirs', 'mcp'},"
        " file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0
    imported = ["localmcp.cli.program", "localmcp.cli.render", "localmcp.cli.session"]
    assert run.stderr.splitlines() == [str(imported), "set()"]
    assert all(f"  {name} " in run.stdout for name in MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_every_command_has_help_that_begins_as_the_list_says(cli, name: str) -> None:
    ran = cli(name, "--help")
    assert (ran.code, ran.err, "--db FILE" in ran.out) == (0, "", True)
    assert MODULES[name][1].rstrip(".") in " ".join(ran.out.split())


def test_errors_are_words_and_an_object_on_stderr_when_json_is_asked_for(cli) -> None:
    ran = cli("search", "--modus", "keyword", "x")
    assert ran.code == 2
    assert "--modus" in ran.err and "See: localmcp search --help" in ran.err
    ran = cli("search", "--json", "--limit", "0", "x")
    assert (ran.code, ran.out, ran.error["code"]) == (2, "", "usage")
    ran = cli("search", "x", "--json", "--db", "typo.localmcp")
    assert (ran.code, ran.out, ran.error["code"]) == (3, "", "file_unavailable")
    assert set(ran.error) == {"code", "message", "hint"}


@pytest.mark.parametrize("order", [("--db", "FILE", "--json", "status"), ("status", "--db", "FILE", "--json")])
def test_common_options_stand_before_or_after_the_command(cli, tmp_path: Path, order: tuple[str, ...]) -> None:
    file = str(tmp_path / "other.localmcp")
    cli("add", "-", "--title", "A", "--db", file, stdin=b"some words")
    assert cli(*(file if word == "FILE" else word for word in order)).json["file"]["path"] == file


def test_an_unexpected_error_is_one_line_and_a_traceback_only_with_v(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down() -> Path:
        raise RuntimeError("the ceiling fell")

    monkeypatch.setattr(config, "config_file", break_down)
    plain, verbose = cli("config", "path"), cli("config", "path", "-v")
    assert (plain.code, verbose.code) == (1, 1)
    assert plain.err == ("Error: Unexpected RuntimeError: the ceiling fell\nRun it again with -v for the traceback.\n")
    assert "Traceback" in verbose.err and "break_down" in verbose.err


# ---------------------------------------------------------------- files that are not there, or odd


def test_a_bad_setting_is_a_configuration_error_that_names_the_variable(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMCP_TRASH_DAYS", "many")
    ran = cli("status")
    assert ran.code == 4
    assert "LOCALMCP_TRASH_DAYS" in ran.err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no folder that is used")
def test_a_search_from_a_folder_that_was_removed_is_answered(filled, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    before = os.getcwd()
    os.chdir(tmp_path / "gone")
    try:
        (tmp_path / "gone").rmdir()
        ran = filled("search", "bread")
    finally:
        os.chdir(before)
    assert (ran.code, ran.err) == (0, "")


# ---------------------------------------------------------------- add


def test_add_tells_on_stderr_what_became_of_the_files(cli, notes: Path) -> None:
    ran = cli("add", str(notes))
    assert (ran.code, ran.out) == (0, "")
    assert re.search(r"3 indexed: \d+ new passages in [\d.]+ s\. The file has [\d.]+ [kM]B\.", ran.err)
    assert "1 skipped: hidden file" in ran.err
    assert "localmcp search" in ran.err


def test_a_file_that_fails_makes_the_exit_code_1_and_the_others_are_added(cli, notes: Path) -> None:
    (notes / "broken.pdf").write_bytes(b"%PDF-1.7 this is none")
    ran = cli("add", str(notes))
    assert ran.code == 1
    assert "3 indexed" in ran.err and "failed: notes/broken.pdf: " in ran.err
    assert cli("status", "--json").json["stats"]["totalSources"] == 3
    ran = cli("add", "nowhere", "--json")
    assert (ran.code, ran.error["code"]) == (1, "not_found")
    assert "nowhere" in ran.error["message"]


def test_text_on_stdin_is_added_under_its_title(cli) -> None:
    ran = cli("add", "-", "--title", "Café", "-c", "talk", "--meta", "year=2024", stdin="perché no?".encode())
    assert (ran.code, ran.out) == (0, "")
    assert cli("show", "Café").out == "perché no?\n"
    found = cli("search", "perche", "-c", "talk", "--meta", "year=2024", "--json").json
    assert found["results"][0]["metadata"] == {"year": 2024}


@pytest.mark.parametrize("data", [b"%PDF-1.7\n%\xe2\xe3\n1 0 obj", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(50)])
def test_what_is_no_text_is_not_added_from_stdin(cli, data: bytes) -> None:
    ran = cli("add", "-", "--title", "Bees", stdin=data)
    assert (ran.code, "does not hold text" in ran.err) == (2, True)


# ---------------------------------------------------------------- search


def test_search_with_json_prints_exactly_what_the_tool_returns(filled) -> None:
    arguments = {"query": "calcium", "limit": 2, "mode": "keyword", "sourceId": "Tomatoes"}
    by_tool = filled("call", "search", json.dumps(arguments)).json
    by_command = filled("search", "calcium", "-n", "2", "-m", "keyword", "--source", "Tomatoes", "--json").json
    assert by_command == by_tool
    assert by_command["count"] == 1 and "explain" not in by_command["results"][0]


def test_people_see_the_hits_that_json_has(cli) -> None:
    text = "\n\n".join(f"# Part {part}\n\n{'Bees fly. ' * 120}" for part in range(12))
    cli("add", "-", "--title", "Bees", stdin=text.encode())
    words = ("search", "bees", "-n", "12", "-m", "keyword")
    assert cli(*words, "--json").json["count"] == 12 and "1 document, 12 passages" in cli(*words).out


def test_a_changed_file_is_marked(filled, notes: Path) -> None:
    (notes / "garden.md").write_text("something else entirely")
    (notes / "fondo.md").unlink()
    assert "the file has changed since" in filled("search", "calcium", "-m", "keyword").err
    assert "the file is gone" in filled("search", "riscatto", "-m", "keyword").err


# ---------------------------------------------------------------- documents


def test_show_prints_a_document_exactly_or_the_passages_around_a_hit(filled) -> None:
    for name in ("notes/garden.md", "garden.md", "Tomatoes"):
        ran = filled("show", name)
        assert (ran.code, ran.out) == (0, GARDEN)
        assert "Tomatoes" in ran.err
    hit = filled("search", "calcium", "--json").json["results"][0]
    for name in (hit["chunkId"], hit["chunkId"][:8]):  # as --json has it, and as people see it
        ran = filled("show", name)
        assert ran.code == 0 and "lack of calcium" in ran.out
    assert filled("search", "tomato calcium or riscatto retry", "-n", "1").out.endswith("More: --cursor 1\n")


def test_show_fails_for_what_is_not_there(filled) -> None:
    plain, as_json = filled("show", "nothing"), filled("show", "nothing", "--json")
    assert (plain.code, plain.out, as_json.code) == (1, "", 1)
    assert "localmcp sources" in plain.err
    assert "garden.md" in filled("show", "gardn.md").err
    assert as_json.json["error"] == "Invalid sourceId format"


def test_documents_are_listed_by_where_their_files_are_and_when_these_changed(filled, notes: Path) -> None:
    ran = filled("sources")
    assert (ran.code, len(ran.out.splitlines())) == (0, 4)
    assert f"notes{os.sep}garden.md" in ran.out
    assert filled("sources", "--json", "-n", "1").json["total"] == 3
    box = notes / "box.mbox"
    box.write_text("From a@b Thu Jan  1 00:00:00 2015\nFrom: a@b\nSubject: Cheese\n\nTwelve a kilo.\n\n" * 2)
    os.utime(notes / "garden.md", (86_400, 86_400))
    Path("shelf").symlink_to(notes)
    filled("refresh", "-q")
    for path in ("notes/box.mbox", "shelf/box.mbox", str(box)):
        assert filled("sources", "--path", path, "--json").json["total"] == 2
    assert f"{date.fromtimestamp(86_400)}" in filled("sources", "--order", "title").out
    assert "garden.md" in filled("sources").out.splitlines()[-1]
    assert "There are none." in filled("sources", "--path", "elsewhere").err
    assert filled("show", "shelf/garden.md").out == filled("show", "notes/garden.md").out != ""


def test_why_tells_what_became_of_a_path(filled, notes: Path) -> None:
    assert "indexed" in filled("why", "notes/garden.md").out
    assert filled("why", "notes/garden.md", "--json").json["entries"][0]["status"] == "indexed"
    (notes / "broken.docx").write_text("PK no zip")
    assert filled("refresh").code == 1
    folder = filled("why", "notes").out
    assert "1 failed" in folder and "notes/broken.docx" in folder and "hidden file" in folder
    both = filled("why", "notes/.secret.md", "elsewhere.md")
    assert both.out.index("hidden file") < both.out.index("never offered")
    files = filled("why", "notes/garden.md", "elsewhere.md", "--json").json["files"]
    assert [len(file["entries"]) for file in files] == [1, 0]


def test_refresh_asks_before_it_buries_a_folder_that_is_gone(filled, notes: Path, tmp_path: Path) -> None:
    notes.rename(tmp_path / "unmounted")
    asked = filled("refresh")
    assert asked.code == 1 and "localmcp refresh --yes" in asked.err
    assert filled("status", "--json").json["stats"]["totalSources"] == 3
    assert filled("refresh", "--confirm-removals", "--json").json["missing"] == 3


def test_json_is_one_line_whatever_a_text_holds(filled, notes: Path) -> None:
    (notes / "odd.md").write_text("# Odd\n\nzeppelin\u2028hangar\x85\u202e", encoding="utf-8")
    assert filled("refresh").code == 0
    found = filled("search", "zeppelin", "--json")
    assert len(found.out.splitlines()) == 1 and "zeppelin\u2028hangar" in found.json["results"][0]["content"]


def test_removed_documents_go_to_the_trash_and_come_back_but_none_goes_where_nobody_can_be_asked(filled) -> None:
    for arguments in (("remove", "Tomatoes"), ("trash", "empty")):
        ran = filled(*arguments)
        assert ran.code == 1 and "--yes" in ran.err
    assert filled("status", "--json").json["stats"]["totalSources"] == 3
    assert filled("remove", "notes/garden.md", "--yes").code == 0
    assert filled("search", "calcium", "-m", "keyword", "--json").json["count"] == 0
    listed = filled("trash", "list")
    assert "Tomatoes" in listed.out
    assert "localmcp trash restore brings documents back." in listed.err, "a person is told the command"
    unknown = filled("trash", "restore", "nothing").err
    assert "localmcp trash list" in unknown and "tool" not in unknown
    assert "removed by you" in filled("refresh").err
    assert filled("trash", "restore", "notes/garden.md").code == 0
    assert filled("search", "calcium", "-m", "keyword", "--json").json["count"] == 1
    assert filled("remove", "notes/garden.md", "--yes").code == 0
    assert filled("trash", "empty", "--yes", "--json").json == {"purged": 1}
    assert filled("trash", "list", "--json").json["count"] == 0


# ---------------------------------------------------------------- tools, status, settings


def test_status_shows_file_contents_and_model(filled) -> None:
    ran = filled("status")
    assert "total sources  3" in ran.out and "hash" in ran.out and ".localmcp" in ran.out
    result = filled("status", "--json").json
    assert result["file"]["writable"] is True
    assert result["stats"]["chunksWithoutEmbeddings"] == 0


def test_a_file_from_elsewhere_is_read_only_until_it_is_adopted(
    filled, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALMCP_DB", str(config.default_database()))
    monkeypatch.setenv("LOCALMCP_STATE_DIR", str(tmp_path / "another machine"))
    (notes / "new.md").write_text("Fresh words.")
    refused = filled("add", str(notes))
    assert refused.code == 3 and "localmcp adopt" in refused.err
    assert filled("status", "--json").json["file"]["writable"] is False
    assert filled("adopt", str(config.load_settings().database)).code == 0
    assert filled("add", str(notes)).code == 0


def test_settings_are_written_read_and_removed_and_secrets_are_not_shown(cli, monkeypatch, caplog) -> None:
    assert cli("config", "set", "trash_days", "7").code == 0
    assert cli("config", "get", "trash_days").out == "7\n"
    described = {each["name"]: each for each in cli("config", "show", "--json").json["settings"]}
    assert (described["trash_days"]["value"], described["trash_days"]["from"]) == (7, "config.toml")
    assert described["model"]["from"] == "LOCALMCP_MODEL"
    assert cli("config", "unset", "trash_days").code == 0
    assert cli("config", "get", "trash_days", "--json").json == {"trash_days": 30}
    assert cli("config", "path").out.strip() == str(config.config_file())
    assert cli("config", "set", "trash_days", "soon").code == 4
    ran = cli("config", "get", "trash_day")
    assert ran.code == 4 and "Did you mean 'trash_days'?" in ran.err
    config.config_file().write_text("trash_days = 7\nnonsense = 1\n")
    assert "localmcp config unset nonsense" in cli("status").err
    assert cli("config", "unset", "nonsense").code == 0
    assert config.config_file().read_text() == "trash_days = 7\n"
    cli("config", "set", "model_api_key", "sesame")
    assert "sesame" not in cli("config", "show").out + cli("config", "get", "model_api_key").out
    monkeypatch.delenv("LOCALMCP_MODEL")
    monkeypatch.setenv("SIMILARITY_SEARCH_MODEL", "text-embedding-3-small")
    assert cli("config", "show").code == 0 and caplog.text.count("is ignored") == 1


def test_a_model_that_needs_no_download_is_tried_by_models_add(cli) -> None:
    ran = cli("models", "add", "hash:64")
    assert ran.code == 0 and ran.out.endswith(" works: 64 dimensions.\n")
    assert cli("models", "add", "telepathy:x").code == 4


# ---------------------------------------------------------------- as a process


def test_stdout_carries_data_only_and_exit_codes_reach_the_shell(notes: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "a.localmcp")
    added = spawn("add", str(notes), "--db", file, cwd=tmp_path)
    assert (added.code, added.out) == (0, "")
    found = spawn("search", "riscatto invalidita", "--db", file, "--json", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert found.code == 0 and found.err == ""
    assert found.json["results"][0]["sourceTitle"] == "Il fondo pensione"
    assert "invalidità" in found.json["results"][0]["content"]
    refused = spawn("--db", str(tmp_path), "sources", cwd=tmp_path)
    assert refused.code == 3 and "WARNING" not in refused.err


def test_serve_with_other_options_is_the_same_server(tmp_path: Path) -> None:
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-m", "localmcp", "serve", "-v", "--db", str(tmp_path / "a.localmcp")],
        input=json.dumps(hello).encode() + b"\n", capture_output=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LOCALMCP_MODEL": "hash"}, cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0
    assert json.loads(run.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "localmcp"


def test_the_demo_makes_a_new_file_only(cli, tmp_path: Path) -> None:
    (tmp_path / "demo.localmcp").touch()
    assert cli("demo", "--keep", str(tmp_path / "demo.localmcp")).code == 2


@POSIX
def test_no_color_is_honoured_on_a_terminal(filled, tmp_path: Path) -> None:
    plain = Terminal("search", "calcium", "-m", "keyword", cwd=tmp_path, NO_COLOR="1").end()
    assert "\x1b[3" not in plain and "\x1b[1m" not in plain and "calcium" in plain


# ---------------------------------------------------------------- how things look


def test_sizes_times_and_counts_read_naturally() -> None:
    assert [humanize.size(n) for n in (12, 4_200, 812_000, 4_200_000)] == ["12 bytes", "4 kB", "812 kB", "4.2 MB"]
    assert [humanize.duration(s) for s in (0.42, 42, 200, 3900)] == ["0.4 s", "42 s", "3 min 20 s", "1 h 5 min"]
    assert [humanize.counted(n, "search") for n in (1, 1204)] == ["1 search", "1,204 searches"]
    assert humanize.short_path("https://a.example/b") == "https://a.example/b"
    assert [humanize.field_text("", n) for n in (0.97661, 374.37, 3807.11, 1e6 + 0.5)] == [
        "0.977", "374", "3807.11", "1,000,000.5",
    ]  # fmt: skip
    assert humanize.field_text("metadata", {"doi_number": "10.1/x"}) == "doi_number: 10.1/x"
    assert humanize.command_line("a\ud800\udcff") == r"$'a\xef\xbf\xbd\xff'"
