"""The house: imports only go down, and heavy libraries stay behind their doors."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = {
    "mcp", "textual", "numpy", "pydantic", "fastembed", "onnxruntime", "tokenizers", "sqlite_vec", "rich", "click",
    "psutil",
}  # fmt: skip


def test_imports_only_go_down() -> None:
    # The command finds its contracts in pyproject.toml.
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_package_itself_imports_only_its_version() -> None:
    code = "import sys, localmcp; print([n for n in sys.modules if n.startswith('localmcp.')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "['localmcp.version']"


def test_opening_a_workspace_module_imports_nothing_heavy() -> None:
    code = "import sys, json, localmcp.workspace; print(json.dumps([n.split('.')[0] for n in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert HEAVY & set(json.loads(run.stdout)) == set()
