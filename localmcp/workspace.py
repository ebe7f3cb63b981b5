"""One open file with every feature wired. The only place where features are put together; it holds no logic."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from localmcp.activity import Activity
from localmcp.api_keys import ApiKeys
from localmcp.config import Settings, cache_directory, config_directory, load_settings, state_directory
from localmcp.hub.servers import McpServers
from localmcp.index.federation import Federation
from localmcp.index.search import Index
from localmcp.library.ingest import Library
from localmcp.library.jobs import Upkeep
from localmcp.library.library_tools import LibraryTools
from localmcp.library.lists import Inventory
from localmcp.library.read import KnowledgeBase
from localmcp.milvus.collection import open_milvus
from localmcp.models import LazyEmbedder, configured_embedder
from localmcp.models.language_model import LanguageModel
from localmcp.own_tools.folder import KINDS, OwnTools
from localmcp.packs.merge import Call, Merge
from localmcp.packs.mounts import Mounts
from localmcp.quickstarts import store
from localmcp.quickstarts.catalog import Quickstarts
from localmcp.records.copies import MilvusCopies
from localmcp.records.records import Records
from localmcp.rules.catalog import RuleCatalog, restore_version
from localmcp.rules.finder import RuleFinder
from localmcp.storage.database import Database
from localmcp.tables.table_tools import TableTools
from localmcp.tool_search.ask import Router
from localmcp.tool_search.discovery import EXECUTE_TOOL, TOOL_SEARCH, Discovery
from localmcp.tool_search.ranking import ToolFinder
from localmcp.tools import Registry
from localmcp.tools.examples import Examples


class Workspace:
    """Everything that works on one file. Making one opens nothing."""

    def __init__(
        self, settings: Settings | None = None, *, read_only: bool = False, embedder: LazyEmbedder | None = None
    ) -> None:
        """`embedder`: the one of the settings' model, if it is being loaded already."""
        self.settings = settings or load_settings()
        self.database = Database(self.settings.database, read_only=read_only)
        self.embedder = embedder or configured_embedder(self.settings)
        adaptive, weight = self.settings.semantic_weight is None, self.settings.semantic_weight
        if weight is None:
            # S3-4; questions in another language share few words with what answers them: nDCG@10 of English questions
            # on Spanish passages .855 with .7, .914 with .8; of Spanish ones .956 and .960.
            weight = 0.8 if self.settings.model == "multilingual" else 0.7
        self.index = Index(self.database, self.embedder, weight, adaptive=adaptive)
        self.milvus = open_milvus(self.settings)
        self.mounts = Mounts(self.index, self.milvus)
        self.federation = Federation(self.index, self.mounts.files)
        self.knowledge = KnowledgeBase(self.federation)
        self.library = Library(self.database, self.embedder, self.settings)
        self.library_tools = LibraryTools(self.library)
        self.inventory = Inventory(self.database)
        self.milvus_copies = MilvusCopies(self.database, self.milvus, self.library_tools.jobs)
        self.tables = TableTools(self.database)
        self.quickstarts = Quickstarts(self.database, self.federation)
        self.rule_finder = RuleFinder(
            self.database, self.index, self.settings.rules_max_results, self.settings.rules_threshold, self.federation
        )
        self.rules = RuleCatalog(self.database, self.index, self.rule_finder)
        self.library.restorers |= {"rule": restore_version, "quick start": store.restore_version}
        self.library.after_restoring = {"rule": self.rules.embed_missing_or_say}
        self.records = Records(self.index, self.milvus, self.library.remove)
        self._add_tools()
        self.upkeep = Upkeep(self.library, self.registry, self.settings.refresh_seconds)
        self.api_keys = ApiKeys(self.database)
        self.registry.observe(self.activity.note_call)

    def _add_tools(self) -> None:
        self.registry = Registry()
        self.registry.explain = self.database.explain
        self.activity = Activity(self.database, self.settings.log_calls)
        self.tool_finder = ToolFinder(self.embedder, cache_directory() / "discovery")
        self.discovery = Discovery(self.registry, self.tool_finder)
        self.registry.suggest = self.discovery.suggest
        spec, key = self.settings.language_model, self.settings.language_model_key or None
        self.router = Router(self.registry, self.discovery, lambda: LanguageModel(spec, key) if spec else None)
        for service in (
            self.knowledge, self.library_tools, self.tables, self.quickstarts, self.rule_finder, self.rules,
            self.records, self.milvus_copies, Examples(), self.discovery, self.router,
        ):  # fmt: skip
            self.registry.add_service(service)
        self.registry.show_all = self.settings.show_all_tools
        # The tools that the person and other servers bring; nothing of them is read before the first listing.
        self.own_tools = OwnTools(config_directory() / "tools", self.settings.database)
        self.registry.add_provider(self.own_tools)
        self.mcp_servers = McpServers(cache_directory() / "mcp", state_directory() / "logs", self.registry)
        self.discovery.starting = self.mcp_servers.starting
        for name, most in ((TOOL_SEARCH, 200), (EXECUTE_TOOL, 90)):
            self.registry.get(name).addition = partial(self.mcp_servers.introduction, ending=False, characters=most)

    @property
    def provider_names(self) -> list[str]:
        """Return the names by which profiles and keys open what brings tools: kinds of own tools, and each server."""
        return [*KINDS.values(), *(server.name for server in self.mcp_servers.servers.values())]

    def merging(self, call: Call) -> Merge:
        """Return what takes other files into this one; `call` runs the tools that import quick starts and rules."""
        return Merge(self.database, self.embedder, call)

    def instructions(self) -> str:
        """Return the instructions about this file for an assistant that connects."""
        more = f"{self.discovery.introduction()} {self.mcp_servers.introduction()}".strip()
        return f"{self.knowledge.instructions()[: 1490 - len(more)]} {more}".rstrip()

    def on_lists_changed(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with `tools`, `resources` or `prompts` and the provider when that list of a connected server
        has changed, from another thread; when the person's own tools have, from the thread that lists or calls next."""
        self.mcp_servers.listeners.append(listener)
        self.own_tools.listeners.append(partial(listener, "tools"))

    def start_background(self) -> None:
        """Begin loading the model, so that no search waits for it, and looking at the added folders when idle."""
        self.embedder.start_loading()
        self.upkeep.start()

    def close(self) -> None:
        """Close the file, and end the MCP servers that were started."""
        for feature in (self.mcp_servers, self.own_tools, self.tables):
            feature.close()
        self.upkeep.stop()
        if self.milvus is not None:
            self.milvus.close()
        for feature in (self.activity, self.api_keys, self.mounts):
            feature.close()
        self.embedder.reset()
        self.database.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_workspace(path: str | os.PathLike[str] | None = None, **settings: object) -> Workspace:
    """Open a file (the default one for None); settings are those of `config.toml`. Raises ConfigurationError."""
    return Workspace(load_settings(database=path, **settings))
