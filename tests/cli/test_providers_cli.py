"""`providers` and `check`: what a person and a program are told, and the exit codes; the samples have no mistakes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tool_manifests import write_tool

from localmcp.cli.session import Session
from localmcp.cli.tools import check, providers
from localmcp.config import config_directory, sample_directory

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs one of the two commands: exit code, stdout, stderr."""
    monkeypatch.setenv("LOCALMCP_DB", str(tmp_path / "a.localmcp"))
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    commands = {"providers": providers, "check": check}

    def run(name: str, *arguments: str) -> tuple[int, str, str]:
        session = Session()
        try:
            code = commands[name].main(list(arguments), prog_name=name, obj=session, standalone_mode=False)
        finally:
            session.close()
        output = capsys.readouterr()
        return code or 0, output.out, output.err

    yield run


def as_json(run: Run, *arguments: str) -> Any:
    return json.loads(run(*arguments, "--json")[1])


def test_without_any_configuration_every_provider_is_empty(run: Run) -> None:
    told = as_json(run, "providers")
    assert told["configDirectory"] == str(config_directory())
    known = {each["name"]: each for each in told["providers"]}
    assert {"commands", "queries", "http", "python"} <= known.keys()
    assert all(known[name]["state"] == "empty" for name in ("commands", "queries", "http", "python"))
    code, out, err = run("check")
    assert (code, out) == (0, "") and "no mistakes" in err


def test_a_mistake_is_printed_with_its_place_and_ends_with_4(run: Run) -> None:
    path = write_tool("wrong", 'kind = "command"\ndescription = "x"\nprogram = "{python}"\ntimout = 3\n')
    code, out, _ = run("check")
    assert code == 4
    assert f"{path}:4: error: timout is not a known key. Did you mean 'timeout'?" in out
    told = as_json(run, "check")
    assert (told["ok"], told["errors"], told["warnings"]) == (False, 1, 0)
    assert told["problems"][0]["line"] == 4
    commands = next(each for each in as_json(run, "providers")["providers"] if each["name"] == "commands")
    assert (commands["state"], commands["tools"], len(commands["problems"])) == ("failing", 0, 1)
    assert "timout is not a known key" in run("providers")[1]


def test_a_warning_is_told_and_ends_with_0(run: Run) -> None:
    write_tool("it", 'kind = "command"\ndescription = "x"\nprogram = "no-such-program-anywhere"\n')
    code, out, _ = run("check")
    assert code == 0 and "warning: The program no-such-program-anywhere is not there." in out


def test_a_file_can_be_checked_before_it_is_put_in_its_place(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    path.write_text('kind = "query"\ndescription = "x"\nsql = "selec 1"\n', encoding="utf-8")
    (tmp_path / "a.localmcp").touch()
    code, out, _ = run("check", str(path))
    assert code == 4 and f"{path}:3: error: The statement cannot be run" in out


def test_the_sample_manifests_have_no_mistakes_and_work(run: Run, tmp_path: Path) -> None:
    from tool_manifests import open_workspace

    samples = sample_directory() / "tools"
    shutil.copytree(samples, config_directory() / "tools")
    with open_workspace(tmp_path) as workspace:
        workspace.library.add_text("Bees live in hives.", title="Bees")
        given = {"text": "a bb ccc\n-d", "longest": True}
        counts = workspace.registry.call("word_count", given).value["result"]
        assert counts == {"lines": 2, "words": 4, "characters": 11, "longest": "ccc"}
        assert workspace.registry.call("largest_documents", {"count": 1}).value["rows"][0][0] == "Bees"
        assert "describe_local_model" in {each.name for each in workspace.registry.tools()}
    (tmp_path / "library.localmcp").rename(tmp_path / "a.localmcp")
    assert as_json(run, "check")["problems"] == []


def test_nothing_is_contacted_or_started_by_looking(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    code = f"open({str(trace)!r}, 'w')"
    write_tool("it", f'kind = "command"\ndescription = "x"\nprogram = "{{python}}"\narguments = ["-c", "{code}"]\n')
    write_tool("web", 'kind = "http"\ndescription = "x"\nurl = "http://127.0.0.1:1/x"\n')

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was contacted")

    monkeypatch.setattr("localmcp.own_tools.http.send", refuse)
    assert run("check")[0] == 0
    run("providers")
    assert not trace.exists()
