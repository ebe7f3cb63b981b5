"""Programs as tools: what they are given, what they can never be given, and how they end."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from federation import is_alive, wait_until
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_manifests import open_workspace, problems_of, write_tool

from localmcp.errors import CallGivenUp, InvalidInput, Unavailable
from localmcp.own_tools.kinds import CommandManifest, find_program
from localmcp.tools import Answer, ClientCall, use_client_call
from localmcp.workspace import Workspace

ECHO = """
kind = "command"
description = "Print the arguments as JSON."
program = "{python}"
output = "json"
arguments = ["-c", "import sys, json; print(json.dumps(sys.argv[1:]))", ARGUMENTS]
"""

SLEEPER = "import os, time; open({!r}, 'w').write(str(os.getpid())); time.sleep(60)"


def python(code: str, more: str = "") -> str:
    """A manifest that runs `code`."""
    return f"""
kind = "command"
description = "Run some code."
program = "{{python}}"
arguments = ["-c", {json.dumps(code)}]
{more}
"""


def run(workspace: Workspace, manifest: str, **arguments: Any) -> Answer:
    write_tool("it", manifest)
    return workspace.registry.call("it", arguments)


# ---------------------------------------------------------------- arguments


def test_no_shell_ever_sees_an_argument(workspace: Workspace, tmp_path: Path) -> None:
    manifest = ECHO.replace("ARGUMENTS", '"{text}"') + "[parameters.text]\nrequired = true\n"
    for text in (f"; touch {tmp_path}/x", "$(id)", "`id`", "| cat", "a b", "*", "'\"", "%PATH%", "é\n\t", "{text}"):
        assert run(workspace, manifest, text=text).value["result"] == [text]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "more", "expected"),
    [
        ('"--", "{text}"', "", ["--", "-x"]),
        ('"--name={text}"', "", ["--name=-x"]),
        ('"{text}"', "allow_dash = true\n", ["-x"]),
    ],
)
def test_a_dash_is_harmless_after_two_dashes_behind_a_name_or_where_allowed(
    workspace: Workspace, arguments: str, more: str, expected: list[str]
) -> None:
    manifest = ECHO.replace("ARGUMENTS", arguments) + "[parameters.text]\nrequired = true\n" + more
    assert run(workspace, manifest, text="-x").value["result"] == expected


def test_two_dashes_as_a_value_do_not_open_the_way_for_the_next(workspace: Workspace) -> None:
    manifest = ECHO.replace("ARGUMENTS", '"{a}", "{b}"')
    manifest += "[parameters.a]\nrequired = true\nallow_dash = true\n[parameters.b]\nrequired = true\n"
    with pytest.raises(InvalidInput, match="b: .* would be taken for an option"):
        run(workspace, manifest, a="--", b="-x")


def test_arguments_stand_or_fall_with_a_parameter(workspace: Workspace) -> None:
    manifest = ECHO.replace(
        "ARGUMENTS", '{ if = "deep", add = ["-r"] }, { if = "since", add = ["--since", "{since}"] }'
    )
    manifest += '[parameters.deep]\ntype = "boolean"\n[parameters.since]\n'
    assert run(workspace, manifest).value["result"] == []
    assert run(workspace, manifest, deep=True).value["result"] == ["-r"]
    assert run(workspace, manifest, deep=False, since="May").value["result"] == ["--since", "May"]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_whatever_is_given_stays_one_argument_and_no_option(first: str, second: str) -> None:
    written = {
        "program": "x",
        "arguments": ["{a}", "-k={b}", "{b}{a}"],
        "parameters": {"a": {"required": True}, "b": {"required": True}},
    }
    command = CommandManifest.model_validate({"kind": "command", "description": "x", **written})
    try:
        listed = command.argument_list({"a": first, "b": second})
    except InvalidInput:
        assert first.startswith("-") or (second + first).startswith("-") or "\0" in first + second
        return
    assert listed == [first, f"-k={second}", second + first]
    assert not listed[0].startswith("-") and not listed[2].startswith("-")


# ---------------------------------------------------------------- what a program gets


def test_only_named_variables_are_passed_on(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    monkeypatch.setenv("WANTED", "yes")
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    more = 'output = "json"\nenvironment = ["WANTED"]\nset_environment = { LC_ALL = "C", MADE = "{x}" }'
    got = run(workspace, python(code, more)).value["result"]
    assert "SECRET_TOKEN" not in got and not any(name.startswith("LOCALMCP_") for name in got)
    assert (got["WANTED"], got["MADE"], got["PATH"]) == ("yes", "{x}", os.environ["PATH"])


def test_text_can_be_given_on_stdin(workspace: Workspace) -> None:
    more = 'stdin = "<{text}>"\n[parameters.text]\nrequired = true\n'
    code = "import sys; data = sys.stdin.buffer.read(); print(len(data), data[:1])"
    assert run(workspace, python(code, more), text="é" * 300_000).text.split() == ["600002", "b'<'"]
    # Without it neither a terminal nor a file: ripgrep would read an empty one, and not the folder.
    same = "import os; print(os.path.samestat(os.fstat(0), os.stat(os.devnull)))"
    assert run(workspace, python(same)).text.strip() == "True"


# ---------------------------------------------------------------- what it gives back


def test_an_exit_code_or_json_that_is_none_is_an_error_with_what_the_program_said(workspace: Workspace) -> None:
    answer = run(workspace, python("import sys; print('out'); sys.exit('no such branch')"))
    assert answer.is_error
    assert answer.text == "it failed with exit code 1:\nno such branch"
    assert (answer.value["exitCode"], answer.value["result"].strip()) == (1, "out")
    assert not run(workspace, python("import sys; sys.exit(1)", "ok_codes = [0, 1]")).is_error
    answer = run(workspace, python("print('oops')", 'output = "json"'))
    assert answer.is_error and "should print JSON" in answer.text
    assert run(workspace, python("print('[NaN, 1]')", 'output = "json"')).value["result"] == [None, 1]


def test_output_is_cut_and_says_so_without_stopping_the_program(workspace: Workspace, tmp_path: Path) -> None:
    done = tmp_path / "done"
    code = f"print('é' * 500_000); open({str(done)!r}, 'w').close()"
    answer = run(workspace, python(code, "max_output = 1001\nset_environment = { PYTHONIOENCODING = 'utf-8' }"))
    assert answer.value["truncated"] is True
    assert answer.value["result"] == "é" * 500
    assert answer.text.endswith("[cut after 1001 bytes]")
    assert done.exists()


# ---------------------------------------------------------------- ends


@pytest.mark.skipif(sys.platform == "win32", reason="asks the process table of POSIX")
def test_a_program_that_takes_too_long_is_stopped_with_its_children(workspace: Workspace, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    # The program and its child ignore the polite request.
    code = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "child = subprocess.Popen([sys.executable, '-c', 'import signal, time; "
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)']); "
        f"open({str(pid_file)!r}, 'w').write(str(child.pid)); print('begun', flush=True); time.sleep(60)"
    )
    answer = run(workspace, python(code, "timeout = 0.8"))
    assert answer.is_error
    assert answer.text == "it took longer than 0.8 s and was stopped."
    assert answer.value["result"].strip() == "begun"
    assert wait_until(lambda: not is_alive(int(pid_file.read_text())))


@pytest.mark.skipif(sys.platform == "win32", reason="asks the process table of POSIX")
def test_closing_the_workspace_ends_what_still_runs(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    workspace = open_workspace(tmp_path)
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(run(workspace, python(SLEEPER.format(str(pid_file))))))
    thread.start()
    written_pid(pid_file)
    workspace.close()
    thread.join(60)
    assert answers[0].is_error
    assert wait_until(lambda: not is_alive(int(pid_file.read_text())))


def written_pid(pid_file: Path) -> int:
    while not (pid_file.exists() and pid_file.read_text()):
        time.sleep(0.01)
    return int(pid_file.read_text())


@pytest.mark.skipif(sys.platform == "win32", reason="asks the process table of POSIX")
def test_a_call_that_is_given_up_ends_its_program(workspace: Workspace, tmp_path: Path) -> None:
    pid_file, cancellation = tmp_path / "pid", Future[None]()
    threading.Thread(target=lambda: (written_pid(pid_file), cancellation.cancel())).start()
    with use_client_call(ClientCall(cancellation=cancellation)), pytest.raises(CallGivenUp):
        run(workspace, python(SLEEPER.format(str(pid_file))))
    assert wait_until(lambda: not is_alive(written_pid(pid_file)))


def test_a_child_that_keeps_the_output_open_does_not_hold_up_the_answer(workspace: Workspace) -> None:
    sleeper = "import time; time.sleep(20)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{sleeper}']); print('ok')"
    begun = time.monotonic()
    answer = run(workspace, python(code, "timeout = 30"))
    assert (answer.is_error, answer.text.strip()) == (False, "ok")
    assert time.monotonic() - begun < 15


# ---------------------------------------------------------------- finding the program


def test_a_program_that_is_not_there_is_told_by_check_and_by_the_call(workspace: Workspace) -> None:
    manifest = 'kind = "command"\ndescription = "x"\nprogram = "no-such-program-anywhere"\n'
    with pytest.raises(Unavailable, match="no-such-program-anywhere is not there"):
        run(workspace, manifest)
    assert any(":3: warning: The program no-such-program-anywhere is not there" in e for e in problems_of(workspace))


@pytest.mark.skipif(sys.platform == "win32", reason="executable bits")
def test_a_program_is_never_taken_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "planted-tool"
    planted.write_text("#!/bin/sh\necho planted\n", encoding="utf-8")
    planted.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(Unavailable):
        find_program("planted-tool", tmp_path / "tools" / "x.toml")
    assert find_program("./planted-tool", tmp_path / "x.toml") == str(planted)
