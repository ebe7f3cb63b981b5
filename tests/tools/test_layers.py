"""The house: imports only go down, and heavy libraries stay behind their doors."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = (
    "mcp", "textual", "numpy", "pydantic", "fastembed", "onnxruntime", "tokenizers", "sqlite_vec", "rich", "click",
    "psutil",
)  # fmt: skip


@cache
def modules_after(statement: str) -> set[str]:
    """Top-level names of what is imported once `statement` has run in a fresh process."""
    code = f"import sys, json; {statement}; print(json.dumps(sorted({{n.split('.')[0] for n in sys.modules}})))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(run.stdout))


def test_imports_only_go_down() -> None:
    # The command finds its contracts in pyproject.toml.
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_package_itself_imports_only_its_version() -> None:
    code = "import sys, localmcp; print([n for n in sys.modules if n.startswith('localmcp.')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "['localmcp.version']"


@pytest.mark.parametrize("library", HEAVY)
def test_opening_a_workspace_module_does_not_import(library: str) -> None:
    assert library not in modules_after("import localmcp.workspace")


def test_the_python_api_opens_a_file_through_the_package(tmp_path: Path) -> None:
    import localmcp

    with localmcp.open(tmp_path / "a.localmcp", model="hash") as workspace:
        assert workspace.knowledge.get_stats()["totalSources"] == 0
