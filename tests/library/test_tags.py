"""Tags: in the file or set by the person, kept through everything that becomes of the file, counted and filtered by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import cli as cli
from folders import write

from localmcp.api.knowledge_file import KnowledgeFile
from localmcp.errors import InvalidInput, NotFound

NOTE = "---\ntags: [house, old]\n---\n# Boiler\n\nBleed it in May. #heating\n"


def test_tags_of_the_file_and_of_the_person_are_one_list(file: KnowledgeFile, tmp_path: Path) -> None:
    write(tmp_path / "docs" / "boiler.md", NOTE)
    write(tmp_path / "docs" / "bike.md", "# Bike\n\nOil the chain in May.\n")
    file.add(tmp_path / "docs")
    assert file.call("tag_document", sourceId="boiler.md", add=["Garage"], remove=["OLD"])["tags"] == [
        "house", "heating", "Garage",
    ]  # fmt: skip
    file.call("tag_document", sourceId="Bike", add=["garage"])  # Written as it is there already.
    assert file.call("list_tags")["tags"][0] == {"tag": "Garage", "documents": 2}
    assert [hit["sourceTitle"] for hit in file.call("search", query="May", tag="heating")["results"]] == ["Boiler"]
    assert [item["title"] for item in file.call("list_sources", tag="Garage", pathPrefix="docs")["sources"]] == [
        "Boiler",
        "Bike",
    ]
    file.call("add_document", title="Tent", text="Dry it.")
    file.call("tag_document", sourceId="Tent", add=["garage"])
    file.call("add_document", title="Tent", text="Dry it well.", replace=True)
    assert file.call("list_tags")["tags"][0] == {"tag": "Garage", "documents": 3}
    with pytest.raises(NotFound, match="No document 'boat'"):
        file.call("tag_document", sourceId="boat", add=["x"])
    with pytest.raises(InvalidInput, match="Name a tag"):
        file.call("tag_document", sourceId="Bike")


def test_tags_of_the_person_stay_when_those_of_the_file_change_and_through_the_trash(
    file: KnowledgeFile, tmp_path: Path
) -> None:
    note = write(tmp_path / "docs" / "boiler.md", NOTE)
    file.add(tmp_path / "docs")
    file.call("tag_document", sourceId="boiler.md", add=["garage"], remove=["old"])

    def tags() -> list[str]:
        file.refresh()
        [item] = file.call("list_sources")["sources"]
        return item["metadata"]["tags"]

    assert tags() == ["house", "heating", "garage"]
    note = note.rename(tmp_path / "docs" / "stove.md")
    write(note, NOTE.replace("house, old", "home, old") + "One more line.\n")
    assert tags() == ["home", "heating", "garage"]
    file.call("remove_source", sourceId="stove.md")
    file.call("restore_source", sourceId="stove.md")
    assert tags() == ["home", "heating", "garage"]
    write(note, "")
    assert tags() == ["garage"]
    file.call("tag_document", sourceId="stove.md", remove=["garage"])
    assert tags() == []


def test_tags_are_set_and_listed_from_the_command_line(tmp_path: Path, cli: Any) -> None:
    write(tmp_path / "boiler.md", NOTE)
    assert cli("add", "boiler.md").code == 0
    assert "Boiler: house, garage" in cli("tag", "boiler.md", "+garage", "-old", "-heating").err
    assert "garage" in cli("tags").out
    refused = cli("tag", "boiler.md", "garage")
    assert refused.code == 2 and "neither +TAG nor -TAG" in refused.err
