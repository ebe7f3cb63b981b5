"""Environments of peers, each its own, made once in a folder; a peer whose environment cannot be made is skipped."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"
PREFIX = "benchmark-"
PACKAGES: dict[str, list[str]] = {
    name.removeprefix(PREFIX): packages
    for name, packages in tomllib.loads(PROJECT.read_text(encoding="utf-8"))["dependency-groups"].items()
    if name.startswith(PREFIX)
}
"""Environment -> what pip installs into it: the dependency groups `benchmark-*` of the project."""
LONGEST_INSTALL = 900.0


class Unavailable(Exception):
    """A peer that cannot be run here, and why."""


def python_of(name: str, folder: Path) -> Path:
    """The interpreter of a peer's environment, which is made when it is not there.

    Raises:
        Unavailable: pip failed, or took longer than 15 minutes.
    """
    place = folder / f"v_{name}"
    python = place / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if (place / "made").exists():
        return python
    said = place.with_suffix(".log")
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    try:
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, capture_output=True)
        with said.open("w", encoding="utf-8") as log:
            command = [str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *PACKAGES[name]]
            subprocess.run(command, check=True, stdout=log, stderr=log, timeout=LONGEST_INSTALL)
    except (subprocess.SubprocessError, OSError) as error:
        raise Unavailable(f"{name} could not be installed ({error}); see {said}") from error
    (place / "made").write_text(f"{time.perf_counter() - start:.0f} s\n", encoding="utf-8")
    return python


def versions(python: Path, packages: list[str]) -> dict[str, str]:
    """Package -> version in that environment."""
    script = "import importlib.metadata as m, json, sys; print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))"
    ran = subprocess.run([str(python), "-c", script, *packages], capture_output=True, text=True, check=False)
    return json.loads(ran.stdout) if ran.returncode == 0 else {}
