"""Names of documents, folders, mounted files and kinds of files, as people write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from command_line import run_here
from folders import write

from localmcp.api.knowledge_file import KnowledgeFile
from localmcp.errors import NotFound


@pytest.mark.parametrize(("on_disk", "typed"), [("NFD", "NFC"), ("NFC", "NFD")])
def test_a_name_in_another_form_of_unicode_is_the_same_file(
    file: KnowledgeFile, tmp_path: Path, on_disk: Any, typed: Any
) -> None:
    folder = tmp_path / normalize(on_disk, "Übungen")
    write(folder / normalize(on_disk, "Öl prüfen.md"), "# Pump\n\nThe pump needs oil in May.\n")
    file.add(tmp_path / normalize(on_disk, "Übungen"))
    path = str(tmp_path / normalize(typed, "Übungen") / normalize(typed, "Öl prüfen.md"))
    for name in (path, normalize(typed, "Öl prüfen.md")):
        assert file.call("get_document", sourceId=name)["source"]["title"] == "Pump"
    for prefix in (path, str(Path(path).parent)):
        assert file.call("search", query="pump", pathPrefix=prefix)["count"] == 1
        assert file.call("list_sources", pathPrefix=prefix)["count"] == 1
    assert file.workspace.library.why(path)["explanation"].startswith("indexed")
    assert file.workspace.library.remove([path]).removed == 1


def test_a_type_is_a_kind_of_file_an_ending_or_a_source(file: KnowledgeFile, tmp_path: Path) -> None:
    write(tmp_path / "docs" / "a.md", "# Pump\n\nThe pump needs oil.\n")
    write(tmp_path / "docs" / "c.csv", "pump,oil\npump,more oil\n")
    write(tmp_path / "docs" / "d.py", "def pump(oil):\n    return oil\n")
    file.add(tmp_path / "docs")
    kinds = {"md": "a.md", ".md": "a.md", "sheet": "c.csv", "code": "d.py", "py": "d.py", "docs": "a.md"}
    for kind, name in kinds.items():
        hits = file.call("search", query="pump oil", sourceType=kind)["results"]
        assert {Path(hit["citation"]["path"]).name for hit in hits} == {name}
    assert "No type 'website'" in file.call("search", query="pump oil", sourceType="website")["message"]


def test_a_mounted_file_is_named_without_a_prefix_where_no_collection_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "pump.md", "# Pump\n\nThe pump needs oil.\n")
    assert run_here("--db", "team.localmcp", "add", "pump.md") == 0
    assert run_here("mount", "team.localmcp") == 0
    write(tmp_path / "bees.md", "# Bees\n\nA hive has one queen.\n")
    assert run_here("add", "bees.md") == 0
    capsys.readouterr()
    assert run_here("sources", "-c", "team") == 0
    assert "Pump" in (listed := capsys.readouterr().out) and "Bees" not in listed
    assert run_here("search", "pump", "-c", "team") == 0
    assert "needs oil" in capsys.readouterr().out


def test_what_is_not_near_is_not_suggested(file: KnowledgeFile, tmp_path: Path) -> None:
    write(tmp_path / "docs" / "boiler-2019.md", "# Boiler\n\nBleed it.\n")
    file.add(tmp_path / "docs")
    with pytest.raises(NotFound) as refused:
        file.workspace.library.remove(["broken-2024.md"])
    assert not refused.value.hint
    with pytest.raises(NotFound) as refused:
        file.workspace.library.remove(["boiler-2018.md"])
    assert "boiler-2019.md" in str(refused.value.hint)
