"""What is mistyped, missing or interrupted is told in one sentence, and nothing is made or changed by it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from command_line import POSIX, ROOT, Terminal

READING = (
    ("status",), ("sources",), ("search", "bees"), ("show", "bees"), ("why", "bees.md"), ("ask", "how many documents"),
    ("call", "get_stats"), ("tools", "call", "get_stats"), ("tools",), ("tools", "search", "mail"), ("mounts",),
    ("unmount", "x"), ("log",), ("doctor",), ("backup",), ("optimize",), ("rules", "list"),
    ("quickstarts", "list"), ("collections", "list"), ("keys", "list"), ("trash", "list"), ("refresh",),
    ("remove", "x", "--yes"), ("collections", "drop", "x", "--yes"), ("pack", "out.localmcp"),
)  # fmt: skip


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_command_that_reads_makes_no_file_and_leaves_an_empty_one_empty(
    cli, tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "mistyped.localmcp"
    cli("--db", str(file), *words)
    assert not file.exists()
    file.touch()
    cli("--db", str(file), *words)
    assert file.stat().st_size == 0


def test_the_message_names_the_file_and_how_to_begin(cli, tmp_path: Path) -> None:
    ran = cli("--db", str(tmp_path / "mistyped.localmcp"), "call", "get_stats")
    assert ran.code == 3
    assert "mistyped.localmcp does not exist yet." in ran.err and "localmcp add FOLDER" in ran.err


def test_a_tool_that_writes_makes_the_file(cli, tmp_path: Path) -> None:
    file = tmp_path / "new.localmcp"
    assert cli("--db", str(file), "call", "addRule", '{"rule_text": "Keep functions short."}').code == 0
    assert file.exists()


def test_restore_and_remove_look_before_they_ask(filled, notes: Path) -> None:
    ran = filled("restore", "notes/garden.md")
    assert (ran.code, "localmcp trash restore ID" in ran.err, "Replace" in ran.err) == (4, True, False)
    ran = filled("remove", "/nope")
    assert ran.code == 1
    assert "No document '/nope'." in ran.err and "trash?" not in ran.err
    assert "Put 3 documents" in filled("remove", str(notes)).err


MISSING = (
    ("add", "/nope"), ("verify", "/nope"), ("merge", "/nope"), ("mount", "/nope"), ("adopt", "/nope"),
    ("restore", "/nope"), ("rules", "import", "/nope"), ("quickstarts", "import", "/nope"), ("eval", "/nope"),
    ("collections", "insert", "x", "--file", "/nope"), ("call", "search", "@/nope"),
    ("servers", "import", "/nope"),
)  # fmt: skip


def test_a_missing_file_has_one_exit_code(filled) -> None:
    for words in MISSING:
        ran = filled(*words)
        assert ran.code == 1, words
        assert "/nope" in ran.err and "Errno" not in ran.err, words


def test_rules_without_a_rule_are_told_with_a_reason(cli, tmp_path: Path) -> None:
    (tmp_path / "car.md").write_text("My car is red and was built in 1998.\n")
    ran = cli("rules", "import", "car.md")
    assert ran.code == 1
    assert "car.md" in ran.err and "Nothing imported." in ran.out
    assert "no rules in it: a rule is a list item" in ran.err


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize("name", ["two\nlines.md", "it's \x1b[31mred\\.md", "\u202egnp.md", "tab\there.md"])
def test_a_command_that_a_message_names_can_be_pasted_whatever_the_file_is_called(
    cli, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    try:
        (folder / name).write_text("Bees like lavender.")
    except OSError:
        pytest.skip("this system refuses such names")
    cli("add", str(folder), "-q")
    said = cli("remove", str(folder / name), "--yes").err
    [command] = re.findall(r"Bring back with: localmcp (.*)   \(", said)
    words = subprocess.run(["bash", "-c", rf"printf '%s\0' {command}"], capture_output=True, check=True).stdout
    assert cli(*words.decode().split("\0")[:-1]).code == 0
    assert cli("show", str(folder / name)).code == 0


# ---------------------------------------------------------------- terminals, streams, signals

HOSTILE = "\x1b]2;owned\x07 \x1b]52;c;aGk=\x07 \x1b[2J \x9b2J \u202egnp.exe lavender\n" + "Bees like flowers.\n" * 40


def test_the_module_render_is_the_only_way_to_the_terminal() -> None:
    direct = re.compile(r"click\.(echo|secho|style|confirm|prompt)\(|(?<![\w.])print\(|sys\.std(out|err)\.write\(")
    modules = (ROOT / "localmcp" / "cli").glob("*.py")
    found = {path.name for path in modules if direct.search(path.read_text(encoding="utf-8"))}
    assert found == {"render.py"}


@POSIX
@pytest.mark.parametrize(
    "words", [("search", "lavender"), ("show", "hostile"), ("sources",), ("search", "lavender", "--json")], ids=" ".join
)
def test_a_document_cannot_command_the_terminal(cli, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "hostile.md").write_text(f"# hostile\x1b]2;title\x07\n\n{HOSTILE}", encoding="utf-8")
    assert cli("add", "hostile.md", "--title", "hostile", "-q").code == 0
    seen = Terminal(*words, cwd=tmp_path).end()
    assert "lavender" in seen or "hostile" in seen
    assert not [sign for sign in ("\x1b]2;", "\x1b]52;", "\x1b[2J", "\x07", "\x9b", "\u202e") if sign in seen]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("words", [("--help",), ("sources",)], ids=" ".join)
def test_a_full_output_is_told(filled, tmp_path: Path, words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "localmcp", *words], stdout=full, stderr=subprocess.PIPE, cwd=tmp_path, text=True
        )
    assert run.returncode == 1
    assert run.stderr.splitlines()[0] == "Error: The output cannot be written: No space left on device."
    assert "Traceback" not in run.stderr and "Exception" not in run.stderr


@POSIX
def test_two_interruptions_end_it_without_a_traceback(tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for number in range(1200):
        (many / f"{number}.md").write_text(f"# Note {number}\n\nWords of note {number}, and some more of them.")
    file = tmp_path / "many.localmcp"
    process = Terminal("add", str(many), "--db", str(file), cwd=tmp_path)
    process.read_until("of 1,200 files")
    process.process.send_signal(signal.SIGINT)
    process.process.send_signal(signal.SIGINT)
    seen = process.end()
    assert process.process.returncode == 130
    assert "Stopped." in seen and "Traceback" not in seen and "Exception" not in seen
    connection = apsw.Connection(str(file))
    assert connection.execute("pragma integrity_check").get == "ok"
    connection.close()


EMPTY = (
    ("add", ""), ("remove", "", "--yes"), ("quickstarts", "import", ""), ("rules", "import", ""), ("backup", ""),
    ("rules", "export", "--to", ""), ("rules", "export", "--to="),
)  # fmt: skip


def test_an_empty_path_is_refused_and_does_not_mean_the_current_folder(filled) -> None:
    for words in EMPTY:
        ran = filled(*words)
        assert (ran.code, "A path is empty" in ran.err) == (2, True), words
        assert filled("sources", "--json").json["total"] == 3, words


def test_a_mistake_is_told_in_words_of_the_command_line(filled) -> None:
    for words, says in (
        (("rules", "add", ""), "'RULE': it is empty."),
        (("rules", "edit", "1", "--text", " "), "'--text': it is empty."),
        (("rules", "add", "x" * 2001), "'RULE': it has 2,001 characters; at most 2,000"),
        (("collections", "create", ""), "'NAME': it is empty."),
        (("rules", "retire", "99"), "localmcp rules list shows"),
        (("quickstarts", "show", "nope"), "localmcp quickstarts list shows"),
        (("collections", "delete", "default", "--yes"), "Say what to delete: IDs, or --filter, not both."),
        (("collections", "delete", "default", "a", "--yes"), "'a' is not a valid integer."),
        (("retrieve", "default", "oven", ""), "'TEXT...': it is empty."),
        (("ask", " "), "'QUERY...': it is empty."),
        (("merge", "."), ". is a folder; a file is needed."),
        (("add", "-", "--to", "milvus://a"), "--to takes files and folders alone"),
        (("add", ".", "--to", "milvus://a", "--no-wait"), "ends when they are stored"),
    ):
        ran = filled(*words)
        assert ran.code and says in ran.err and "Parameters:" not in ran.err, words


UNFIT = (
    (("search", "oven", "--type", "docx"), "No type 'docx'"),
    (("search", "oven", "--meta", "format=doc"), "No metadata field 'format'"),
    (("search", "tag:x oven"), "No document has a tag."),
    (("add", "ftp://example.org/a.txt"), "only http:// and https:// are fetched"),
    (("config", "set", "model", "folder:/none"), "there is no folder /none"),
    (("config", "set", "model", "multilingul"), "Did you mean 'multilingual'?"),
    (("config", "set", "collection", ""), "'' cannot be a name"),
    (("config", "set", "collection", "mount:bees"), "means a mounted file"),
    (("keys", "create", "--providers", "comands"), "no provider 'comands' yet. Did you mean 'commands'?"),
    (("keys", "create", "--expires", ""), "'' is no time; write 30min"),
    (("keys", "create", "--expires", "3 days ago"), "'3 days ago' is no time; write 30min"),
    (("keys", "create", "--expires", "30m"), "'30m' is no time; write 30min, 12h, 7d, 2w, 6 months"),
    (("help", "add"), "Of a command: localmcp add --help"),
)


def test_what_cannot_be_meant_is_refused_with_what_would_be_accepted(filled) -> None:
    for words, advice in UNFIT:
        ran = filled(*words)
        assert advice in ran.out + ran.err, words


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder in which not even root may make one")
def test_a_settings_folder_that_cannot_be_made_is_told_with_a_next_step(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMCP_CONFIG_DIR", "/sys/none")
    ran = cli("config", "set", "trash_days", "3")
    assert (ran.code, "LOCALMCP_CONFIG_DIR" in ran.err, "Unexpected" in ran.err) == (3, True, False)


@POSIX
@pytest.mark.parametrize("words", ["status", "--version"])
def test_a_closed_output_is_no_error(tmp_path: Path, words: str) -> None:
    command = f'"{sys.executable}" -m localmcp {words} >&- 2>"{tmp_path / "errors"}"'
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=False)
    assert "Traceback" not in (tmp_path / "errors").read_text() and "NoneType" not in (tmp_path / "errors").read_text()


def test_an_empty_db_is_refused_and_not_taken_for_the_default_file(filled) -> None:
    for words in (("--db", "", "add", "notes"), ("add", "notes", "--db", ""), ("--db=", "search", "x")):
        refused = filled(*words)
        assert refused.code == 2 and "Is a shell variable not set?" in refused.err, words


def test_a_file_that_is_none_of_ours_is_refused_in_words_that_fit_the_command(filled, tmp_path: Path) -> None:
    (tmp_path / "other.db").write_text("no database " * 100)
    for words in (("adopt", "other.db"), ("--db", "other.db", "search", "x")):
        assert "is not a SQLite database.\nName a file that localmcp made." in filled(*words).err
    restored = filled("restore", "other.db", "--yes").err
    assert "Name a backup." in restored and "Name a file" not in restored
