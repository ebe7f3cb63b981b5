"""Finding files: what is taken, what is passed over, and why."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from folders import write
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localmcp.library.walk import File, Passed, WalkRules, stat_file, walk

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX links, modes and file names")

PATTERNS = [
    f"{sign}{pattern}"
    for sign in ("", "!")
    for pattern in "* */ *.md b b/ /b b/* b/** **/c c/ b/c /* a.md /*.txt **".split()
]


def make(root: Path, *files: str) -> Path:
    """Files below `root`, with their own name as text."""
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    return root


def found(root: Path, rules: WalkRules | None = None) -> list[str]:
    return [_relative(root, each) for each in walk(str(root), rules or WalkRules()) if isinstance(each, File)]


def passed(root: Path, rules: WalkRules | None = None) -> dict[str, str]:
    return {
        _relative(root, each): each.reason for each in walk(str(root), rules or WalkRules()) if isinstance(each, Passed)
    }


def _relative(root: Path, each: File | Passed) -> str:
    return os.path.relpath(each.path, root).replace(os.sep, "/")


def test_a_deeper_ignore_file_overrules_a_shallower_one(tmp_path: Path) -> None:
    make(tmp_path, "a.txt", "keep/a.txt", "keep/b.txt")
    write(tmp_path / ".gitignore", "*.txt")
    write(tmp_path / "keep" / ".gitignore", "!a.txt")
    assert found(tmp_path) == ["keep/a.txt"]


def test_a_localmcpignore_overrules_the_gitignore_beside_it(tmp_path: Path) -> None:
    make(tmp_path, "a.txt", "b.md")
    write(tmp_path / ".gitignore", "*.txt")
    write(tmp_path / ".localmcpignore", "!a.txt\n*.md\n")
    assert found(tmp_path) == ["a.txt"]
    assert passed(tmp_path)["b.md"] == "ignored by .localmcpignore: *.md"


TREE = ("a.md", "b/a.md", "b/c/a.md", "b/c/d.txt", "c/b/d.txt", "d.txt", "#a.md")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make(tmp_path_factory.mktemp("repository").resolve(), *TREE)
    subprocess.run(["git", "init", "-q", root], check=True, env={"PATH": os.environ["PATH"], "HOME": str(root)})
    return root


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git itself")
@given(st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4))
@example(["*", "!*/", "!*.md"])
@example(["/*", "!/b/"])
@example(["b/**", "!b/a.md"])
@example(["b/c/", "!a.md"])
@example(["*.txt", "[bc].md", "b/**/a.md"])
@example(["\\#a.md", "# a.md"])
@settings(max_examples=20, deadline=None)
def test_patterns_mean_what_git_means(repository: Path, patterns: list[str]) -> None:
    write(repository / ".gitignore", "\n".join(patterns))
    command = ["git", "-C", str(repository), "ls-files", "--others", "--exclude-standard"]
    environment = {**os.environ, "HOME": str(repository)}
    listed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert sorted(found(repository)) == sorted({*listed.stdout.splitlines()} - {".gitignore"})


def test_the_ignore_files_of_the_repository_above_count_too_but_not_for_a_folder_that_is_named(tmp_path: Path) -> None:
    make(tmp_path, ".git/HEAD", "docs/a.md", "docs/b.log", "build/c.md")
    write(tmp_path / ".gitignore", "*.log\nbuild/")
    write(tmp_path / ".git" / "info" / "exclude", "a.md")
    assert passed(tmp_path / "docs") == {
        "a.md": "ignored by .git/info/exclude: a.md",
        "b.log": "ignored by .gitignore: *.log",
    }
    assert found(tmp_path / "build") == ["c.md"]


@pytest.mark.parametrize("pattern", ["*a" * 40 + "b", "/**" * 40 + "/b", "*a" * 5000 + "b"])
def test_a_pattern_of_many_stars_does_not_hold_up_the_walk(tmp_path: Path, pattern: str) -> None:
    deep = "/".join("a" * 40)
    make(tmp_path, "a" * 200 + ".md", f"{deep}/c.md")
    write(tmp_path / ".gitignore", pattern)
    assert sorted(found(tmp_path)) == [f"{deep}/c.md", "a" * 200 + ".md"]


def test_ignore_files_above_count_only_inside_a_repository_or_a_watched_folder(tmp_path: Path) -> None:
    make(tmp_path, "docs/a.md")
    write(tmp_path / ".gitignore", "*.md")
    assert found(tmp_path / "docs") == ["a.md"]
    (left_out,) = walk(str(tmp_path / "docs"), WalkRules(watched=frozenset([str(tmp_path)])))
    assert left_out == Passed(str(tmp_path / "docs" / "a.md"), "ignored by .gitignore: *.md")


def test_what_nobody_searches_is_passed_over_by_default(tmp_path: Path) -> None:
    names = {
        "node_modules/x/index.js": "ignored by default: node_modules/",
        "__pycache__/x.py": "ignored by default: __pycache__/",
        ".git/config": "ignored by default: .git/",
        "x.egg-info/PKG-INFO": "ignored by default: x.egg-info/",
        "env/pyvenv.cfg": "ignored by default: virtual environment (pyvenv.cfg)",
        "stuff/CACHEDIR.TAG": "ignored by default: cache folder (CACHEDIR.TAG)",
        "x.pyc": "ignored by default: *.pyc",
        "app.min.js": "ignored by default: *.min.js",
        "package-lock.json": "ignored by default: package-lock.json",
        "~$letter.docx": "ignored by default: ~$letter.docx",
        "mine.localmcp": "ignored by default: *.localmcp",
        ".secret": "hidden file",
        ".config/a.md": "hidden folder",
    }
    make(tmp_path, *names)
    assert passed(tmp_path) == {name.split("/")[0]: reason for name, reason in names.items()}


def test_hidden_files_are_taken_on_request_but_not_the_defaults(tmp_path: Path) -> None:
    make(tmp_path, ".notes/a.md", ".git/config", ".env")
    assert found(tmp_path, WalkRules(include_hidden=True)) == [".env", ".notes/a.md"]


def test_an_exclamation_mark_brings_in_what_is_hidden_or_ignored_by_default(tmp_path: Path) -> None:
    make(tmp_path, ".github/workflow.md", "yarn.lock", ".other/a.md")
    write(tmp_path / ".localmcpignore", "!.github/\n!yarn.lock\n")
    assert found(tmp_path) == ["yarn.lock", ".github/workflow.md"]


def test_given_patterns_choose_files_at_any_depth(tmp_path: Path) -> None:
    make(tmp_path, "a.md", "b.txt", "sub/c.md", "sub/d.py")
    assert found(tmp_path, WalkRules(patterns=("*.md",))) == ["a.md", "sub/c.md"]
    assert passed(tmp_path, WalkRules(patterns=("*.md", "*.py")))["b.txt"] == (
        "does not match the patterns given: *.md *.py"
    )


def test_removed_paths_are_passed_over_and_other_roots_not_even_mentioned(tmp_path: Path) -> None:
    make(tmp_path, "a.md", "gone.md", "other/b.md")
    rules = WalkRules(removed=frozenset([str(tmp_path / "gone.md")]), elsewhere=frozenset([str(tmp_path / "other")]))
    assert found(tmp_path, rules) == ["a.md"]
    assert passed(tmp_path, rules) == {"gone.md": "removed by you; add it by its own path to have it back"}


@needs_posix
def test_links_are_not_followed_so_loops_and_what_lies_outside_are_harmless(tmp_path: Path) -> None:
    root = make(tmp_path / "root", "a.md", "sub/b.md")
    outside = make(tmp_path / "outside", "secret.md")
    (root / "sub" / "loop").symlink_to(root)
    (root / "out").symlink_to(outside)
    (root / "link.md").symlink_to(outside / "secret.md")
    (root / "dangling.md").symlink_to(outside / "nowhere.md")
    assert found(root) == ["a.md", "sub/b.md"]
    assert set(passed(root).values()) == {"symbolic link, not followed"}


@needs_posix
def test_pipes_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    os.mkfifo(tmp_path / ".gitignore")
    assert passed(tmp_path) == {"pipe.md": "not a regular file", ".gitignore": "hidden file"}
    assert stat_file(str(tmp_path / "pipe.md")) == Passed(str(tmp_path / "pipe.md"), "not a regular file")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names themselves")
def test_a_name_that_is_not_unicode_is_told_in_a_form_that_can_be_stored(tmp_path: Path) -> None:
    with open(os.fsencode(str(tmp_path)) + b"/caf\xe9.md", "w") as file:
        file.write("x")
    [each] = walk(str(tmp_path))
    assert isinstance(each, Passed)
    assert each.reason == "the name is not valid Unicode"
    assert each.path.encode()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_reported(tmp_path: Path) -> None:
    make(tmp_path, "locked/a.md", "b.md")
    (tmp_path / "locked").chmod(0)
    try:
        assert passed(tmp_path) == {"locked": "the folder cannot be read: permission denied"}
    finally:
        (tmp_path / "locked").chmod(0o700)
