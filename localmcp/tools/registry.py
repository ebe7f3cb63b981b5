"""The registry: every interface lists, finds and calls tools through it."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, UnknownTool
from localmcp.humanize import quoted
from localmcp.masking import mask_text
from localmcp.schemas import Json, did_you_mean, nearest
from localmcp.tools.base import Answer, Provider, Tool
from localmcp.tools.method_tool import tools_of
from localmcp.tools.scope import Scope, current_scope, use_scope

log = logging.getLogger(__name__)

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
_running: ContextVar[str | None] = ContextVar("localmcp_running", default=None)
"""The tool whose call is under way."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One finished call, as observers receive it."""

    tool: str
    arguments: Json
    scope: Scope
    started_at: float
    """Unix time, seconds."""
    seconds: float
    error: LocalMCPError | Exception | None
    answer: Answer | None
    via: str | None = None
    """The tool that ran it for the caller, such as `execute_tool`."""


class Registry:
    """A provider made of tools and providers; of two tools with one name the first keeps it. Thread-safe."""

    name = "registry"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tools: dict[str, Tool] = {}
        self._providers: tuple[Provider, ...] = ()
        self.observers: tuple[Callable[[CallRecord], None], ...] = ()
        self.show_all = False
        """List the discoverable tools too."""
        self.explain: Callable[[Exception], LocalMCPError | None] = lambda _: None
        """Returns our own error for an unexpected one, such as a full disk; None for a bug."""
        self.offers: list[Any] = []
        """Resources and prompts of connected servers (`McpServers`)."""
        self.suggest: Callable[[str], list[str]] = lambda _: []
        """Names of the tools that do what some words say, best first."""
        self.refusal: LocalMCPError | None = None
        """When set, every call raises it: settings that cannot be used still leave the tools listed."""

    def add_service(self, service: object) -> None:
        """Register every marked method of `service`."""
        for tool in tools_of(service):
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Register one tool; replaces an earlier one of that name."""
        with self._lock:
            self._tools = {**self._tools, tool.name: tool}

    def remove(self, name: str) -> bool:
        """Take one registered tool away; False if there was none."""
        with self._lock:
            remaining = {key: value for key, value in self._tools.items() if key != name}
            removed = len(remaining) < len(self._tools)
            self._tools = remaining
        return removed

    def add_provider(self, provider: Provider) -> None:
        with self._lock:
            self._providers = (*self._providers, provider)

    def remove_provider(self, provider: Provider) -> bool:
        with self._lock:
            remaining = tuple(p for p in self._providers if p is not provider)
            removed = len(remaining) < len(self._providers)
            self._providers = remaining
        return removed

    def observe(self, observer: Callable[[CallRecord], None]) -> None:
        """Call `observer` after every call; it must be quick and must not raise."""
        with self._lock:
            self.observers = (*self.observers, observer)

    def tools(self, *, for_listing: bool = False) -> list[Tool]:
        """Return every tool the scope may call: registered ones, then providers, then the request's own.

        `for_listing` skips providers that are `only_hidden`: clients list tools at every start, and asking other
        servers for tools that the list does not show could take seconds.
        """
        tools_by_name = dict(self._tools)
        with self._asking_providers() as providers:
            for provider in providers:
                if for_listing and getattr(provider, "only_hidden", False):
                    continue
                try:
                    for tool in provider.tools():
                        tools_by_name.setdefault(tool.name, tool)
                except Exception:
                    log.warning("a tool provider could not list its tools and is skipped", exc_info=True)
        scope = current_scope()
        return [tool for tool in tools_by_name.values() if scope.names(tool.name) and scope.allows(tool.mark)]

    def visible(self) -> list[Tool]:
        """Return what tools/list shows: the visible tools; or all but the stand-ins for hidden ones."""
        if self.show_all:
            return [tool for tool in self.tools() if not tool.mark.stand_in]
        return [tool for tool in self.tools(for_listing=True) if tool.mark.visible]

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name in the current scope, or None; what a provider raises passes through."""
        allowed = current_scope().tools
        if allowed is not None and name not in allowed:
            return None
        if name in self._tools:
            return self._tools[name]
        with self._asking_providers() as providers:
            return next((tool for provider in providers if (tool := provider.find(name)) is not None), None)

    def get(self, name: str) -> Tool:
        """Return the tool of that name, to show it: unlike in a call, a provider that fails is skipped.

        Raises UnknownTool, which names the nearest, if there is none for this caller.
        """
        try:
            tool = self.find(name)
        except Exception:
            log.warning("a tool provider could not look up %s and is skipped", mask_text(name), exc_info=True)
            tool = next((tool for tool in self.tools() if tool.name == name), None)
        if tool is None:
            raise self.unknown(name)
        return tool

    @contextmanager
    def _asking_providers(self) -> Generator[tuple[Provider, ...]]:
        """Yield global providers, then the request's, in a scope without the latter.

        A registry among them (S1-4) would ask itself forever.
        """
        scope = current_scope()
        names = scope.provider_names
        # The provider `mcp` knows itself which of its servers, `mcp:NAME`, are named.
        named = None if names is None else {name.partition(":")[0] for name in names}
        ours = tuple(provider for provider in self._providers if named is None or provider.name in named)
        with use_scope(replace(scope, providers=())):
            yield (*ours, *scope.providers)

    def unknown(self, name: str) -> UnknownTool:
        """Return the error for a name that no tool has; its hint names the nearest tools.

        Those are the ones with the same end (`srv.echo` is `srv__echo`, with a client's prefix or without the server),
        then the one that is spelled like it, then those that do what its words say. Two actions on one thing
        (`get_document`, `delete_document`) are not alike.
        """
        names, written = [tool.name for tool in self.tools()], name[:200]
        spelled, words = "__" + re.sub(r"[.:/]", "__", written), _WORD.findall(written)
        meant = [name for name in names if spelled.endswith(f"__{name}") or name.endswith(spelled)]
        near = nearest(written, names, least=80)
        if not meant and near and words and nearest(words[0], _WORD.findall(near)[:1]):
            meant = [near]
        is_one = len(meant) == 1
        if not meant:
            try:
                meant = self.suggest(" ".join(words))
            except LocalMCPError as error:
                log.info("no tool could be suggested: %s", error)
            is_one = len(meant) == 1 and nearest(written, meant) is not None
        hint = f"Did you mean '{meant[0]}'?" if is_one else f"Nearest tools: {', '.join(meant)}."
        return UnknownTool(
            f"Unknown tool: {quoted(name)}", hint=hint if meant else did_you_mean(written, names) or None
        )

    def call(self, name: str, arguments: Json | None = None, scope: Scope | None = None) -> Answer:
        """Run the tool `name` in `scope` (the current one by default): the one entry of all interfaces.

        The observers are told of it, even if it never reached a tool.

        Raises:
            UnknownTool: no such tool for this caller; the message names the nearest.
            AccessDenied: the tool changes things, and the caller may only read.
            LocalMCPError: what the tool raises.
        """
        with use_scope(scope or current_scope()) as inside:
            started_at, start = time.time(), time.perf_counter()
            arguments, answer, failure = arguments or {}, None, None
            via, token = _running.get(), _running.set(name)
            try:
                if self.refusal is not None:
                    raise self.refusal
                tool = self.find(name)
                if tool is None:
                    raise self.unknown(name)
                if not inside.allows(tool.mark):
                    raise AccessDenied(
                        f"{name} changes things, and this caller may only read.",
                        hint="It takes a key with the scope write, or a profile with the right write.",
                    )
                answer = tool.call(arguments)
                return answer
            except Exception as error:
                failure = error if isinstance(error, LocalMCPError) else self.explain(error) or error
                if isinstance(error, UnicodeEncodeError):
                    # JSON can name half a character; neither SQLite, UTF-8 nor a model can hold it.
                    failure = InvalidInput(f"An argument of {name} has half a character; leave it out.")
                if failure is not error:
                    raise failure from error
                raise
            finally:
                _running.reset(token)
                seconds = time.perf_counter() - start
                record = CallRecord(name, arguments, inside, started_at, seconds, failure, answer, via)
                for observer in self.observers:
                    observer(record)
