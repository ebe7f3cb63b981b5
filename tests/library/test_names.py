"""Names of documents, folders, mounted files and kinds of files, as people write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from folders import write

from localmcp.api.knowledge_file import KnowledgeFile


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
