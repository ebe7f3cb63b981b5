"""A search for the name of a file finds that file, whatever is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localmcp.config import Settings
from localmcp.packs.pack import write_pack
from localmcp.workspace import Workspace

TEXTS = {
    "work/oidc-v2.md": "# Sign in with Authelia\n\nAdd the client to the provider.\n\n## Groups\n\nNames of groups.\n",
    "work/backend.md": "# Settings\n\nOIDC is set by variables; version v2 of the protocol, oidc v2, is needed.\n",
    "work/QuarterlyReport2025.txt": "Sales rose a little.\n",
    "work/Rental contract.txt": "Pets are allowed.\n",
    "private/Prüfung.txt": "The boiler was looked at.\n",
    "private/Договор аренды.txt": "Животные разрешены.\n",
    "private/notes.md": "# Thoughts\n\nNothing yet.\n",
    "work/notes.md": "# Meeting\n\nWe spoke about notes.\n",
    **{f"projects/{number}/readme.md": f"# Project {number}\n\nSee the manual.\n" for number in range(6)},
}


@pytest.fixture
def shelf(tmp_path: Path):
    for name, text in TEXTS.items():
        path = tmp_path / "shelf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with Workspace(Settings(database=tmp_path / "a.localmcp", model="hash")) as workspace:
        workspace.library.add_paths([str(tmp_path / "shelf")])
        yield workspace


def found_names(workspace: Workspace, query: str, **arguments: Any) -> list[str]:
    answer: Any = workspace.registry.call("search", {"query": query, **arguments}).value
    paths = [Path(hit["citation"]["path"]) for hit in answer["results"]]
    return [f"{path.parent.name}/{path.name}" for path in paths]


def test_the_document_that_a_search_names_comes_first(shelf: Workspace) -> None:
    for query, name in (
        ("oidc-v2.md", "work/oidc-v2.md"),
        ("OIDC v2", "work/oidc-v2.md"),
        ("what does oidc-v2.md say about backend settings?", "work/oidc-v2.md"),
        ("quarterly report", "work/QuarterlyReport2025.txt"),
        ("is a dog fine by Rental contract.txt", "work/Rental contract.txt"),
        ("PRÜFUNG", "private/Prüfung.txt"),
        ("договор аренды", "private/Договор аренды.txt"),
        ("private notes", "private/notes.md"),
        ("notes.md of what is private", "private/notes.md"),
    ):
        for mode in ("hybrid", "keyword"):
            assert found_names(shelf, query, mode=mode)[0] == name, (query, mode)


def test_of_a_named_document_the_passage_that_answers_is_shown_without_doubt_and_on_one_page_only(
    shelf: Workspace,
) -> None:
    def asked(query: str, **arguments: Any) -> Any:
        return shelf.registry.call("search", {"query": query, **arguments}).value

    assert "Names of groups" in asked("groups in oidc-v2.md")["results"][0]["content"]
    named = asked("quarterly report")
    assert "lowConfidence" not in named and named["results"][0]["relevance"] > 50
    first = asked("private notes", limit=1)
    second = asked("private notes", limit=50, cursor=first["nextCursor"])
    paths = [hit["citation"]["path"] for hit in (*first["results"], *second["results"])]
    assert paths[0].endswith("private/notes.md") and len(paths) == len(set(paths)) > 1


def test_a_name_that_many_files_have_is_a_word_like_others(shelf: Workspace) -> None:
    assert not any(name.endswith("readme.md") for name in found_names(shelf, "readme", mode="keyword"))
    assert found_names(shelf, "readme 3")[0] == "3/readme.md"


def test_a_named_document_obeys_filters_and_the_trash(shelf: Workspace, tmp_path: Path) -> None:
    assert found_names(shelf, "oidc-v2.md", pathPrefix=str(tmp_path / "shelf" / "private"), mode="keyword") == []
    shelf.registry.call("remove_source", {"sourceId": str(tmp_path / "shelf" / "work" / "oidc-v2.md")})
    assert "work/oidc-v2.md" not in found_names(shelf, "oidc-v2.md")


def test_a_file_whose_name_has_no_word_is_found_like_others(shelf: Workspace, tmp_path: Path) -> None:
    (tmp_path / "shelf" / "private" / "-.-").write_text("The boiler hums.", encoding="utf-8")
    shelf.library.add_paths([str(tmp_path / "shelf")])
    assert "private/-.-" in found_names(shelf, "boiler private -.-")


def test_a_document_of_a_mounted_file_is_named_too(shelf: Workspace, tmp_path: Path) -> None:
    pack = tmp_path / "team.localmcp"
    write_pack(shelf.database, pack, overwrite=True)
    with Workspace(Settings(database=tmp_path / "own.localmcp", model="hash")) as own:
        own.library.add_text("A quarterly report tells what a quarter of a year brought.", "Reports")
        own.mounts.mount(pack)
        answer: Any = own.registry.call("search", {"query": "QuarterlyReport2025"}).value
    assert answer["results"][0]["origin"] == "team"
