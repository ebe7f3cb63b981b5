"""One open file with every feature wired. The only place where features are put together; it holds no logic."""

from __future__ import annotations

import os
from types import TracebackType

from localmcp.config import Settings, cache_directory, load_settings, models_directory
from localmcp.discovery import Discovery
from localmcp.embeddings import Embedder, LazyEmbedder, open_embedder
from localmcp.examples import Examples
from localmcp.knowledge.citations import Citations
from localmcp.knowledge.documents import KnowledgeBase
from localmcp.knowledge.ingest import Library
from localmcp.knowledge.library_tools import LibraryTools
from localmcp.knowledge.upkeep import Upkeep
from localmcp.language_models import LanguageModel
from localmcp.quickstarts.catalogue import Quickstarts
from localmcp.router import Router
from localmcp.rules.care import RuleCare
from localmcp.rules.catalogue import RuleCatalogue
from localmcp.rules.exchange import RuleExchange
from localmcp.rules.finder import RuleFinder
from localmcp.rules.generalizer import ModelGeneralizer
from localmcp.rules.memory import RuleMemory
from localmcp.search.index import Index
from localmcp.search.tool_ranking import ToolRanking
from localmcp.storage.database import Database
from localmcp.tools import Registry


class Workspace:
    """Everything that works on one file. Making one opens nothing."""

    def __init__(self, settings: Settings | None = None, *, read_only: bool = False) -> None:
        self.settings = settings or load_settings()
        self.database = Database(self.settings.database, read_only=read_only)
        self.embedder = LazyEmbedder(self._open_embedder)
        self.index = Index(self.database, self.embedder, self.settings.semantic_weight)
        self.knowledge = KnowledgeBase(self.database, self.index)
        self.library = Library(self.database, self.embedder, self.settings)
        self.library_tools = LibraryTools(self.library, self.database, self.settings)
        self.citations = Citations(self.database, self.index)
        self.quickstarts = Quickstarts(self.database)
        self.rule_finder = RuleFinder(
            self.database, self.index, self.settings.rules_max_results, self.settings.rules_threshold
        )
        self.rules = RuleCatalogue(self.database, self.index, self.rule_finder)
        self.rule_exchange = RuleExchange(self.rules)
        self.rule_care = RuleCare(self.rules)
        self.rule_memory = RuleMemory(self.rules, ModelGeneralizer(self._open_language_model))
        self.registry = Registry()
        self.discovery = Discovery(self.registry)
        self.tool_ranking = ToolRanking(self.embedder, cache_directory())
        self.router = Router(self.registry, self.tool_ranking, self._open_language_model)
        for service in (
            self.knowledge,
            self.library_tools,
            self.citations,
            self.quickstarts,
            self.rule_finder,
            self.rules,
            self.rule_care,
            self.rule_memory,
            self.rule_exchange,
            Examples(),
            self.discovery,
            self.router,
        ):
            self.registry.add_service(service)
        self.registry.show_all = self.settings.show_all_tools
        self.upkeep = Upkeep(self.library, self.settings.refresh_seconds)
        self.registry.observe(self.upkeep.note_call)

    def _open_embedder(self) -> Embedder:
        return open_embedder(
            self.settings.model,
            api_key=self.settings.model_api_key or None,
            threads=self.settings.threads or None,
            models_directory=models_directory(),
        )

    def _open_language_model(self) -> LanguageModel | None:
        settings = self.settings
        if not settings.language_model:
            return None
        return LanguageModel(
            settings.language_model,
            settings.language_model_key or None,
            timeout=settings.language_model_timeout,
        )

    def instructions(self) -> str:
        """What an assistant is told about this file when it connects."""
        return self.knowledge.instructions()

    def start_background(self) -> None:
        """Begin loading the model, so that no search waits for it, and looking at the added folders when idle."""
        self.embedder.start_loading()
        self.upkeep.start()

    def close(self) -> None:
        """Close the file."""
        self.upkeep.stop()
        self.index.close()
        self.database.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_workspace(path: str | os.PathLike[str] | None = None, **settings: object) -> Workspace:
    """Open a file (the default one for None); settings are those of `config.toml`.

    Raises:
        ConfigurationError: a setting that cannot be used.
    """
    return Workspace(load_settings(database=path, **settings))
