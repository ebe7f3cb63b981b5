"""One command connects a client: its real file, nothing else in it lost, and a server that was seen to work."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import command_line
import pytest
from clients import CLIENTS, Run, run_command, write
from command_line import Ran

from localmcp.config import config_directory, servers_file
from localmcp.connect.configuration import Change, find_targets, plan_change, write_changes
from localmcp.errors import ConfigurationError, InvalidInput
from localmcp.hub import client_configuration
from localmcp.hub.client_configuration import read_document

TIME = {"command": "uvx", "args": ["mcp-server-time"]}
JSON = '\ufeff{\r\n\t"z": 1.5,\r\n\t"mcpServers": {\r\n\t\t"time": {}\r\n\t},\r\n\t"a": "ü"\r\n}\r\n'
TOML = '# mine\nmodel = "o4"  # which\n\n[mcp_servers.time]\ncommand = "uvx"\n\n[profiles.x]\na = 1\n'
ENTRY = {"command": "/x/python", "args": ["-m", "localmcp", "serve"], "env": {"PYTHONUTF8": "1"}}


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    return run_command(capsys, "connect")


@pytest.fixture
def say(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs `localmcp connect ...` as a person does."""
    return lambda *words: command_line.run(capsys, "connect", *words)


@pytest.fixture(autouse=True)
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    # `sys.platform` of that module alone: the server that is started must be that of this machine.
    monkeypatch.setattr(client_configuration, "sys", SimpleNamespace(platform="linux"))


def plan(path: Path, entry: Any) -> Change:
    return plan_change(find_targets(str(path))[0], "localmcp", entry)


def change(path: Path, entry: Any) -> Any:
    """Change a file; return what it holds then."""
    write_changes([plan(path, entry)], dry_run=False)
    return read_document(path)


# ---------------------------------------------------------------- one command


def test_claude_desktop_is_connected_and_the_server_answers(home: Path, run: Run) -> None:
    path = write(home / ".config/Claude/claude_desktop_config.json", {"mcpServers": {"time": TIME}, "theme": "dark"})
    before = path.read_bytes()
    code, told = run("claude-desktop", "--db", str(home / "work.localmcp"))
    assert (code, told["client"], told["files"][0]["action"]) == (0, "claude-desktop", "added")
    assert {"search", "get_document", "tool_search", "execute_tool"} <= set(told["tools"])
    document = read_document(path)
    entry = document["mcpServers"]["localmcp"]
    assert {**document, "mcpServers": {"time": TIME}} == json.loads(before)
    assert os.path.isabs(entry["command"]) and os.path.samefile(entry["command"], sys.executable)
    assert entry["args"] == ["-m", "localmcp", "serve", "--db", str(home / "work.localmcp")]
    assert entry["env"]["PYTHONUTF8"] == "1"
    assert Path(told["files"][0]["backup"]).read_bytes() == before
    assert not (home / "work.localmcp").exists()


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_gets_the_form_it_reads(home: Path, run: Run, client: str) -> None:
    place, table = CLIENTS[client]
    (home / place).parent.mkdir(parents=True, exist_ok=True)
    code, told = run(client, "--no-start")
    assert (code, [each["path"] for each in told["files"]]) == (0, [str(home / place)])
    entry = read_document(home / place)[table]["localmcp"]
    assert entry["args"][:3] == ["-m", "localmcp", "serve"]
    assert entry.get("type") == ("stdio" if client in ("claude-code", "vscode") else None)


def test_claude_code_loads_the_tools_at_once_unless_the_person_said_otherwise(home: Path, run: Run) -> None:
    path = home / ".claude.json"
    run("claude-code", "--no-start")
    assert json.loads(path.read_text())["mcpServers"]["localmcp"]["alwaysLoad"] is True
    path.write_text(path.read_text().replace('"alwaysLoad": true', '"alwaysLoad": false'))
    run("claude-code", "--no-start")
    assert json.loads(path.read_text())["mcpServers"]["localmcp"]["alwaysLoad"] is False


def test_a_client_that_is_not_installed_is_told_with_its_place_and_those_that_are(home: Path, say: Any) -> None:
    write(home / ".cursor/mcp.json", {})
    code, out, err = say("claude-desktop", "--no-start", "--dry-run")
    assert code == 0 and "claude-desktop" in out and "added" in out
    assert "claude_desktop_config.json" in out and "clients found: cursor" in err
    assert not (home / ".config").exists()
    write(home / ".claude.json", {})
    assert "was not found" not in say(str(home / ".mcp.json"), "--no-start", "--dry-run")[2]


def test_what_is_neither_client_nor_file_is_refused_with_the_nearest(home: Path, run: Run) -> None:
    code, told = run("claude-deskop")
    assert code == 2 and "Did you mean 'claude-desktop'?" in told["error"]["hint"]
    code, told = run(str(home))
    assert code == 2 and "nor a file" in told["error"]["message"]


# ---------------------------------------------------------------- look before, take back


def test_dry_run_and_print_change_nothing(home: Path, run: Run, say: Any) -> None:
    path = write(home / ".cursor/mcp.json", {"mcpServers": {"time": TIME}})
    before = path.read_bytes()
    assert run("cursor", "--dry-run")[1]["files"] == [{"path": str(path), "action": "added", "backup": None}]
    code, out, _ = say("cursor", "--print")
    assert code == 0 and list(json.loads(out)["mcpServers"]) == ["localmcp"]
    assert tomllib.loads(say("codex", "--print")[1])["mcp_servers"]["localmcp"]["args"][0] == "-m"
    assert json.loads(say("vscode", "--print")[1])["servers"]["localmcp"]["type"] == "stdio"
    assert json.loads(say("--print")[1])["mcpServers"]["localmcp"]
    assert (path.read_bytes(), sorted(path.parent.iterdir())) == (before, [path])


def test_remove_takes_out_what_connect_put_in(home: Path, run: Run) -> None:
    path = write(home / ".cursor/mcp.json", json.dumps({"mcpServers": {"time": TIME}, "a": "ü"}, indent=4) + "\n")
    text = path.read_bytes()
    run("cursor", "--no-start")
    code, told = run("cursor", "--remove")
    assert (code, told["files"][0]["action"]) == (0, "removed")
    assert json.loads(path.read_bytes()) == json.loads(text)
    code, told = run("cursor", "--remove")
    assert (code, told["files"][0]["action"], told["files"][0]["backup"]) == (0, "absent", None)


def test_clients_are_listed_with_what_they_start(home: Path, run: Run, say: Any) -> None:
    write(home / ".cursor/mcp.json", {"mcpServers": {"kb": {"command": "localmcp", "args": ["serve"]}}})
    write(home / ".gemini/settings.json", "{broken")
    _, told = run()
    assert {each["client"]: (each["connectedAs"], bool(each["error"])) for each in told["clients"]} == {
        "cursor": (["kb"], False),
        "gemini": ([], True),
    }
    assert "cursor  kb " in say()[1]


# ---------------------------------------------------------------- the person's things stay


@pytest.mark.parametrize("text", ['{\n  // mine\n  "mcpServers": {}\n}', '{"mcpServers": {"localmcp": OURS,}}'])
def test_a_file_with_comments_is_left_alone_and_its_block_is_printed(home: Path, run: Run, text: str) -> None:
    text = text.replace("OURS", json.dumps({"command": "localmcp"}))
    path = write(home / ".cursor/mcp.json", text)
    code, told = run("cursor", "--no-start")
    assert code == 4 and "has comments" in told["error"]["message"] and str(path) in told["error"]["message"]
    says, _, block = told["error"]["hint"].partition("\n")
    assert says == "Put this into it by hand:"
    assert json.loads(block)["mcpServers"]["localmcp"]["args"][:3] == ["-m", "localmcp", "serve"]
    code, told = run("cursor", "--remove")
    if '"localmcp"' in text:
        assert (code, told["error"]["hint"]) == (4, "Take 'localmcp' out of 'mcpServers' by hand.")
    assert (path.read_text(), sorted(path.parent.iterdir())) == (text, [path])


@pytest.mark.parametrize(("table", "text"), [("mcpServers", JSON), ("mcp_servers", TOML)])
def test_order_indentation_line_ends_and_comments_of_toml_stay(tmp_path: Path, table: str, text: str) -> None:
    path = write(tmp_path / ("config.toml" if text == TOML else "mcp.json"), text)
    before = read_document(path)
    assert change(path, ENTRY)[table] == {**before[table], "localmcp": ENTRY}
    changed = path.read_bytes().decode()
    assert all(line in changed for line in text.splitlines() if "}" not in line)
    assert text == TOML or "\n" not in changed.replace("\r\n", "")
    assert change(path, None) == before
    assert text == TOML or path.read_bytes().decode() == text


def test_what_a_person_added_to_the_entry_stays(tmp_path: Path) -> None:
    old = {"command": "localmcp", "args": ["serve"], "env": {"MINE": "1"}, "alwaysAllow": ["search"]}
    path = write(tmp_path / "mcp.json", {"mcpServers": {"localmcp": old}})
    assert plan(path, ENTRY).action == "updated"
    kept = {**ENTRY, "env": {"MINE": "1", "PYTHONUTF8": "1"}, "alwaysAllow": ["search"]}
    assert change(path, ENTRY)["mcpServers"]["localmcp"] == kept


@pytest.mark.parametrize("entry", [ENTRY, None])
def test_another_program_of_that_name_is_left_alone(tmp_path: Path, entry: Any) -> None:
    path = write(tmp_path / "mcp.json", {"mcpServers": {"localmcp": TIME}})
    with pytest.raises(InvalidInput, match="another program") as caught:
        plan(path, entry)
    assert caught.value.hint is not None and "--name" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"mcpServers": {\n  "a": }}', "line 2 column 8"),
        ("[]", "JSON object"),
        ('{"mcpServers": []}', "'mcpServers' must be an object, not a list."),
        ('{"mcpServers": null}', "'mcpServers' must be an object, not null."),
        ('{"mcpServers": {}}', "write-protected"),
    ],
)
def test_a_file_that_cannot_be_changed_is_refused_and_left_alone(home: Path, run: Run, text: str, says: str) -> None:
    path = write(home / ".cursor/mcp.json", text)
    path.chmod(0o444)
    code, told = run("cursor", "--no-start")
    path.chmod(0o644)
    assert code == 4 and says in told["error"]["message"] and str(path) in told["error"]["message"]
    assert (path.read_text(), sorted(path.parent.iterdir())) == (text, [path])


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_link_stays_one_and_the_file_behind_it_keeps_its_rights(home: Path, run: Run) -> None:
    real = write(home / "dotfiles/cursor.json", {"mcpServers": {"time": TIME}})
    real.chmod(0o640)
    link = home / ".cursor/mcp.json"
    link.parent.mkdir()
    link.symlink_to(real)
    assert run("cursor", "--no-start")[0] == 0
    assert link.is_symlink() and set(read_document(real)["mcpServers"]) == {"time", "localmcp"}
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert [each.name.startswith("cursor.json.backup-") for each in sorted(real.parent.iterdir())] == [False, True]


def test_a_file_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "mcp.json", {"mcpServers": {}})
    planned = plan(path, ENTRY)
    write(path, {"mcpServers": {"time": TIME}})
    with pytest.raises(ConfigurationError, match="meanwhile"):
        write_changes([planned], dry_run=False)
    assert read_document(path) == {"mcpServers": {"time": TIME}} and sorted(tmp_path.iterdir()) == [path]


# ---------------------------------------------------------------- settings go along


def test_the_settings_of_this_shell_go_along_and_secrets_do_not(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    monkeypatch.setenv("LOCALMCP_DB", "~/x.localmcp")
    monkeypatch.setenv("MILVUS_PASSWORD", "s3cret-token")
    _, told = run("cursor", "--no-start")
    entry = told["entry"]
    assert entry["args"][3:] == ["--db", str(home / "x.localmcp")]
    assert entry["env"]["LOCALMCP_MODEL"] == "hash"
    assert entry["env"]["LOCALMCP_CONFIG_DIR"] == str(config_directory())
    assert told["withheld"] == ["MILVUS_PASSWORD"]
    assert "s3cret" not in (home / ".cursor/mcp.json").read_text()


def test_a_profile_must_exist_and_limits_what_the_client_sees(home: Path, run: Run) -> None:
    code, told = run("cursor", "--profile", "reader")
    assert code == 4 and "profile" in told["error"]["message"]
    write(config_directory() / "profiles.toml", '[reader]\ntools = ["search"]\nrights = "read"\n')
    code, told = run("cursor", "--profile", "reader")
    assert (code, told["tools"], told["entry"]["args"][-2:]) == (0, ["search"], ["--profile", "reader"])


def test_a_server_that_does_not_start_is_written_nowhere(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(home / ".cursor/mcp.json", {"mcpServers": {}})
    monkeypatch.setattr(sys, "executable", str(home / "gone" / "python"))
    code, told = run("cursor")
    assert code == 3 and "does not start" in told["error"]["message"]
    assert (read_document(path), sorted(path.parent.iterdir())) == ({"mcpServers": {}}, [path])


def test_import_reads_the_servers_of_every_client_and_changes_none(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_command(capsys, "servers")
    cursor = write(home / ".cursor/mcp.json", {"mcpServers": {"time": TIME, "us": {"command": "localmcp"}}})
    write(home / ".codex/config.toml", '[mcp_servers.shop]\ncommand = "shop"\n')
    write(home / ".gemini/settings.json", "{broken")
    before = cursor.read_bytes()
    code, told = run("import", "--dry-run")
    assert (code, told["changed"], servers_file().exists()) == (0, 2, False)
    code, told = run("import")
    actions = {each["name"]: each["action"] for each in told["servers"]}
    assert actions == {"time": "added", "shop": "added", "us": "skipped"}
    assert len(told["problems"]) == 1 and "gemini" in told["problems"][0].lower()
    assert cursor.read_bytes() == before
    assert set(read_document(servers_file())["mcpServers"]) == {"time", "shop"}
    assert run("import", "cursor")[1]["changed"] == 0
