"""localmcp: one SQLite file that holds a person's knowledge, and the tools an assistant uses it through."""

from localmcp.version import __version__ as __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from localmcp.api.knowledge_file import KnowledgeFile
    from localmcp.api.knowledge_file import open_file as open  # noqa: A004  (the public name of the Python API)
    from localmcp.errors import ToolNotFound
    from localmcp.server.tool_registry import ToolRegistry, with_request_providers

__all__ = ["KnowledgeFile", "ToolNotFound", "ToolRegistry", "__version__", "open", "with_request_providers"]


def __getattr__(name: str) -> "Any":
    # The package itself imports nothing, so that `serve` can answer its first message within milliseconds.
    if name in ("open", "KnowledgeFile"):
        from localmcp.api import knowledge_file

        return knowledge_file.open_file if name == "open" else knowledge_file.KnowledgeFile
    if name in ("ToolRegistry", "ToolNotFound", "with_request_providers"):
        from localmcp.server import tool_registry

        return getattr(tool_registry, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
