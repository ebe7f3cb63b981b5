"""Rules in files: every format that people have is read, written, and read again; broken ones are told by line."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from command_line import cli as cli
from hypothesis import given, settings
from hypothesis import strategies as st

from localmcp.config import Settings
from localmcp.errors import AccessDenied, InvalidInput, NotFound
from localmcp.rules.files import Format, read_file, read_text, rule_files_in, write_rules
from localmcp.rules.rulebook import Rule
from localmcp.tools import Scope
from localmcp.workspace import Workspace

CLAUDE = """# The shop

Some words about the shop.

@docs/conventions.md

## Testing

- Write a test for each fix.
  It must fail before.
- > **Never** mock the database.
    - Not even in unit tests, please.
- [Guide](docs/testing.md)

```
- not a rule, but code in a block
```

<!-- - not a rule, but a comment here -->

## Layout of the page

When you draw a dialog:

1. Use the grid of eight pixels.
2. [x] Keep the close button on the right.

Always ask before adding a colour.
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(Settings(database=tmp_path / "rules.localmcp", model="hash")) as workspace:
        yield workspace


def texts(reading: Any) -> list[str]:
    return [draft.rule_text for draft in reading[0]]


# ---------------------------------------------------------------- reading


def test_markdown_gives_list_items_and_paragraphs_that_are_rules_with_headings_as_category_or_context() -> None:
    reading = read_text(CLAUDE, "CLAUDE.md", "CLAUDE.md")
    assert texts(reading) == [
        "Write a test for each fix. It must fail before.",
        "Never mock the database.",
        "Not even in unit tests, please.",
        "Use the grid of eight pixels.",
        "Keep the close button on the right.",
        "Always ask before adding a colour.",
    ]
    first, *_, last = reading[0]
    assert (first.category, first.context, first.origin) == ("testing", "", "CLAUDE.md:9")
    assert (last.category, last.context) == ("general", "Layout of the page")
    assert CLAUDE.splitlines()[int(last.origin.rpartition(":")[2]) - 1] == last.rule_text


def test_mdc_front_matter_gives_description_globs_and_always_apply() -> None:
    front = "description: Database\nglobs: migrations/**/*.sql, src/{a,b}/*.py\nalwaysApply: true"
    [draft] = read_text(f"---\n{front}\n---\n- Write a way down.\n", "db.mdc", "db.mdc")[0]
    assert draft.context == "Database"
    assert draft.globs == ("migrations/**/*.sql", "src/{a,b}/*.py")
    assert draft.always_apply is True
    assert draft.origin == "db.mdc:6"


@pytest.mark.parametrize(
    ("line", "globs"),
    [
        ("globs: *.py", ("*.py",)),
        ("globs: **/*.ts", ("**/*.ts",)),
        ('globs: "src/*.py"', ("src/*.py",)),
        ('globs: ["a/*", "b/*"]', ("a/*", "b/*")),
        ("globs:", ()),
        ("globs: **/*", ()),
        ('applyTo: "**/*.ts,**/*.tsx"', ("**/*.ts", "**/*.tsx")),
        ("paths: src/**/*.{ts,tsx}", ("src/**/*.{ts,tsx}",)),
    ],
)
def test_patterns_are_read_as_people_write_them(line: str, globs: tuple[str, ...]) -> None:
    [draft] = read_text(f"---\n{line}\n---\nUse strict types everywhere.\n", "a.mdc", "a.mdc")[0]
    assert draft.globs == globs


@pytest.mark.parametrize(
    ("front", "problem", "globs"),
    [
        ("description: a\nalwaysApply: [\nglobs: '*.py'", "alwaysApply: [", ("*.py",)),
        ("alwaysApply: perhaps\nglobs: *.py", "must be true or false", ("*.py",)),
        ("description: a\nglobs: [1, 2]", "must be text or a list of texts", ()),
        ("description: a: b: c\nglobs: '*.py'", "description: a: b: c", ("*.py",)),
    ],
)
def test_a_bad_line_of_the_front_matter_is_named_and_the_others_count(
    front: str, problem: str, globs: tuple[str, ...]
) -> None:
    [draft], problems = read_text(f"---\n{front}\n---\n- Never do this.\n", "a.mdc", "a.mdc")
    assert (draft.rule_text, draft.globs, draft.always_apply) == ("Never do this.", globs, False)
    assert problems[0]["where"] == "a.mdc" and problem in " ".join(each["problem"] for each in problems)


def test_json_lines_are_taken_line_by_line_and_broken_ones_reported() -> None:
    rows = [
        '{"rule_text": "Use UTC.", "category": "Style", "context": "dates", "weight": 1.5, "globs": ["*.py"]}',
        "{broken",
        "",
        '{"category": "style"}',
        '["no", "object"]',
        '{"rule_text": "x y", "globs": "a"}',
        '{"rule_text": "x y", "weight": 7}',
        '{"rule_text": 5}',
        '{"rule_text": "Use UTF-8."}',
    ]
    reading = read_text("\n".join(rows), "rules.jsonl", "rules.jsonl")
    assert texts(reading) == ["Use UTC.", "Use UTF-8."]
    first = reading[0][0]
    assert (first.category, first.context, first.weight, first.globs) == ("style", "dates", 1.5, ("*.py",))
    assert [problem["where"] for problem in reading[1]] == [f"rules.jsonl:{n}" for n in (2, 4, 5, 6, 7, 8)]
    assert "invalid json" in reading[1][0]["problem"] and "rule_text" in reading[1][1]["problem"]


def test_a_file_that_is_no_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_bytes(b"\xff\xfe\x00binary")
    [problem] = read_file(tmp_path / "CLAUDE.md")[1]
    assert "not text in UTF-8" in problem["problem"]


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read_without_an_accident(text: str) -> None:
    for name in ("CLAUDE.md", "a.mdc", ".cursorrules", "a.jsonl"):
        reading = read_text(text, name, name)
        assert all(draft.rule_text.strip() for draft in reading[0])


def test_the_rule_files_of_a_project_are_found(tmp_path: Path) -> None:
    names = ("CLAUDE.md", "AGENTS.md", ".cursorrules", ".cursor/rules/a.mdc", ".cursor/rules/sub/b.mdc", "loose.mdc",
             ".github/copilot-instructions.md", ".github/instructions/x.instructions.md", "rules.jsonl", "GEMINI.md",
             ".claude/rules/api/x.md", ".windsurfrules", ".windsurf/rules/x.md", ".clinerules/x.md", ".roorules",
             ".continue/rules/x.md", ".junie/guidelines.md", ".rules")  # fmt: skip
    for name in (*names, "README.md", "docs/CLAUDE.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("- Keep it short and simple.\n")
    assert {path.relative_to(tmp_path).as_posix() for path in rule_files_in(tmp_path)} == set(names)


def test_items_that_are_too_short_for_a_rule_are_named() -> None:
    text = "# Stil\n\n- Kurze Funktionen schreiben.\n- Keine Abkürzungen.\n- No abbreviations\n- Pure CSS\n- API\n"
    drafts, problems = read_text(text, "AGENTS.md", "AGENTS.md")
    assert len(drafts) == 3
    assert [(each["where"], each["problem"].partition(":")[0]) for each in problems] == [
        ("AGENTS.md:6", "“Pure CSS”"),
        ("AGENTS.md:7", "“API”"),
    ]


@pytest.mark.parametrize("name", ["rules.csv", "rules.yaml", "rules.json", "Rules.TOML"])
def test_a_table_does_not_become_one_rule(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("rule_text,category\nAlways commit and then push,git\n")
    drafts, [problem] = read_file(tmp_path / name)
    assert drafts == [] and "Markdown and JSON Lines" in problem["problem"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("Never import from `__init__.py`", "Never import from `__init__.py`"),
        ("Use __slots__ in hot classes", "Use __slots__ in hot classes"),
        ("Match src/**/a and lib/**/b", "Match src/**/a and lib/**/b"),
        ("Format `src/**/*.py` and `lib/**/*.py`", "Format `src/**/*.py` and `lib/**/*.py`"),
        ("**Always** run **all of the** tests", "Always run all of the tests"),
        ("Read [the **guide**](docs/a__b.md) and <https://example.org/a__b>",
         "Read [the guide](docs/a__b.md) and <https://example.org/a__b>"),
        ("Prefer *short*\n  names", "Prefer *short* names"),
    ],
)  # fmt: skip
def test_strong_emphasis_goes_and_names_and_patterns_stay(line: str, text: str) -> None:
    assert texts(read_text(f"- {line}\n", "CLAUDE.md", "CLAUDE.md")) == [text]


# ---------------------------------------------------------------- writing


def rule(number: int, text: str, category: str, context: str = "", **more: Any) -> Rule:
    values = {"project": None, "globs_json": "[]", "always_apply": 0, "weight": 1.0, **more}
    return Rule(number, text, category, context, values["weight"], None, 1, "", None, values["project"],
                values["globs_json"], values["always_apply"], None)  # fmt: skip


RULES = [
    rule(1, "Write a test for each fix.", "testing", "bug fixes"),
    rule(2, "Never mock the `database`.", "testing"),
    rule(3, "Use early returns where you can.", "style", "Python › functions"),
    rule(4, "Never edit `__init__.py` below `src/**/gen`.", "style"),
]


@pytest.mark.parametrize("kind", get_args(Format))
def test_what_is_written_reads_back_the_same(kind: Any) -> None:
    files = write_rules(RULES, kind)
    drafts = [draft for name, text in files.items() for draft in read_text(text, Path(name).name, name)[0]]
    told = {(draft.rule_text, draft.category, draft.context) for draft in drafts}
    assert told == {(each.rule_text, each.category, each.context) for each in RULES}


@pytest.mark.parametrize("kind", get_args(Format))
def test_a_rule_for_some_files_says_so_in_every_format_and_reads_back_the_same(kind: Any) -> None:
    globs = '["m/*.sql", "db/**/*.{py,sql}"]'
    special = rule(1, "Write a way down for migrations.", "style", "SQL", globs_json=globs, weight=0.0)
    ((name, text),) = write_rules([special], kind).items()
    assert "m/*.sql" in text
    [draft] = read_text(text, Path(name).name, name)[0]
    assert (draft.rule_text, draft.context) == (special.rule_text, special.context)
    assert (draft.globs, draft.weight) == (("m/*.sql", "db/**/*.{py,sql}"), 0.0 if kind == "jsonl" else 1.0)


# ---------------------------------------------------------------- the tools


def test_an_import_that_adds_nothing_writes_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    # Calling it is an error.
    monkeypatch.setattr(workspace.database, "write", None)
    assert workspace.rules.import_rules(text="- API\n")["added"] == 0
    nothing = workspace.registry.call("importQuickstarts", {"text": "just text"}).value
    assert (nothing["added"], len(nothing["skipped"])) == (0, 1)


def test_files_are_for_the_person_at_the_machine_and_importing_again_adds_nothing(
    workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "CLAUDE.md").write_text(CLAUDE)
    given_path = {"path": str(tmp_path)}
    with pytest.raises(AccessDenied):
        workspace.registry.call("importRules", given_path, Scope(caller="stdio", trusted=False))
    first, again = (workspace.registry.call("importRules", given_path).value for _ in range(2))
    assert (first["added"], first["known"], again["added"], again["known"]) == (6, 0, 0, 6)
    with pytest.raises(NotFound, match="no file or folder"):
        workspace.registry.call("importRules", {"path": "too long" * 1000})


def test_a_path_without_rules_is_told(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(NotFound):
            workspace.rules.import_rules(str(path))
    with pytest.raises(InvalidInput):
        workspace.rules.import_rules()


# ---------------------------------------------------------------- the command line


def test_the_command_line_imports_searches_edits_and_exports(tmp_path: Path, cli: Any) -> None:
    run = partial(cli, "rules")
    (tmp_path / "CLAUDE.md").write_text(CLAUDE)
    assert run("import", ".")[1].strip() == "Rules: 6 added"
    assert "Never mock the database." in run("search", "never mock the database", "--threshold", "0.3")[1]
    code, _, explained = run("add", "Never mock the database.")
    assert code == 1 and "says nearly the same" in explained
    assert run("add", "Be kind to each other.", "--category", "style", "--glob", "*.md")[0] == 0
    assert run("list", "--words", "kind", "--json").json["rules"][0]["globs"] == ["*.md"]
    assert run("edit", "7", "--glob", "", "--weight", "1.5")[0] == 0
    edited = run("list", "--words", "kind", "--json").json["rules"][0]
    assert "globs" not in edited and edited["weight"] == 1.5
    assert run("retire", "7")[0] == run("restore", "7")[0] == 0
    assert run("remember", "we always sort imports")[0] == 0
    assert run("retire", "8")[0] == 0
    assert run("export", "--format", "claude", "--to", "out")[0] == 0
    assert (tmp_path / "out" / "CLAUDE.md").read_text(encoding="utf-8").startswith("# Rules")
    assert run("export", "--format", "claude", "--to", "out")[0] == 2
    assert run("retire", "99")[0] == 1


@pytest.mark.parametrize(
    ("above", "item", "rule"),
    [
        ("Avoid describing it as:\n", "generic travel router", "Avoid describing it as: generic travel router"),
        ("## Don'ts\n", "Use `any` in new code", "Don'ts: Use `any` in new code"),
        ("## Never do this\n", "Never rebase shared branches", "Never rebase shared branches"),
        ("- Forbidden:\n  ", "wildcard imports", "Forbidden: wildcard imports"),
        ("- Names\n  - Avoid:\n    - one letter\n  ", "Use whole words", "Use whole words"),
        ("## Vermeiden\n\nNicht verwenden:\n", "globale Variablen", "Nicht verwenden: globale Variablen"),
        ("## 禁止事项\n", "直接提交到主分支", "禁止事项: 直接提交到主分支"),
        ("## テスト\n", "新しい関数には必ずテストを書く", "新しい関数には必ずテストを書く"),
        ("Before a release:\n", "run the whole suite", "run the whole suite"),
        ("Never push on Friday.\n", "run the whole suite", "run the whole suite"),
    ],
)  # fmt: skip
def test_an_item_below_words_that_forbid_says_so_itself(above: str, item: str, rule: str) -> None:
    drafts = read_text(f"# Guide\n\n{above}\n- {item}\n".replace("  \n- ", "  - "), "AGENTS.md", "AGENTS.md")[0]
    assert drafts[-1].rule_text == rule


def test_an_item_above_others_and_the_sentence_before_a_list_are_the_context_of_their_rules_only() -> None:
    text = "- For every migration:\n    - Write the way down.\n    - Test it twice.\n- Be kind to all.\n\n"
    text += "Before a release:\n\n- run the whole suite\n\nThat was it.\n\n- keep the branches short\n"
    drafts = read_text(text, "AGENTS.md", "AGENTS.md")[0]
    assert [(draft.rule_text, draft.context) for draft in drafts] == [
        ("Write the way down.", "For every migration"),
        ("Test it twice.", "For every migration"),
        ("Be kind to all.", ""),
        ("run the whole suite", "Before a release"),
        ("keep the branches short", ""),
    ]


def test_the_sample_rules_are_found_for_the_judged_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The benchmark, whose numbers are promises.
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    quality: Any = importlib.import_module("rules_quality")
    with Workspace(Settings(database=tmp_path / "rules.localmcp", model="default")) as workspace:
        quality.import_rules(workspace, "samples")
        assert workspace.rules.list_rules()["total"] >= 60
        tasks = quality.read_tasks(workspace, "all")
        assert len(tasks) >= 40 and sum(not task.best for task in tasks) >= len(tasks) / 3
        numbers = quality.measure(workspace, tasks)
    assert numbers["best among five"] >= 0.85
    assert numbers["precision"] >= 0.4
    assert numbers["silent where nothing fits"] >= 0.85
