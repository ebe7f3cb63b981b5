"""The tools that read documents, as an assistant calls them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

from jsonschema import Draft202012Validator
from library import Library
from pydantic import TypeAdapter

from localmcp.index.federation import Federation
from localmcp.library.read import KnowledgeBase
from localmcp.models import HashEmbedder
from localmcp.storage.database import Database
from localmcp.tools import Answer, MethodTool, Registry, Scope

LEAN = Scope(caller="stdio", trusted=False, lean=True)
SENTENCE = "The boiler of house {0} is filled through valve {0} until the needle shows {0} bar, and then it is aired. "


def check_promise(registry: Registry, name: str, value: dict[str, Any]) -> None:
    """Check that a tool's structured answer is of the type that its method promises."""
    tool = registry.find(name)
    assert isinstance(tool, MethodTool)
    promised = get_type_hints(tool.method, include_extras=True)["return"]
    if promised is not Answer:
        Draft202012Validator(TypeAdapter(promised).json_schema(mode="serialization")).validate(value)


class Desk:
    """The tools that read, behind a registry."""

    def __init__(self, database: Database, embedder: HashEmbedder) -> None:
        self.library = Library(database, embedder)
        self.registry = Registry()
        self.registry.add_service(KnowledgeBase(Federation(self.library.index)))

    def add_text(self, title: str, text: str) -> None:
        self.library.put(text, title=title)

    def add_file(self, path: Path, text: str) -> None:
        path.write_text(text)
        self.library.put(text, title=path.name, uri=str(path))
