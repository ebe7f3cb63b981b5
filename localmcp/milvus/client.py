"""The only module that imports pymilvus: where the server is, a time limit on every call, what its errors mean.

pymilvus takes half a second to import, loads a `.env` file of a folder above, and writes tracebacks to stderr. None of
that happens before the first call, and the last two never.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast
from urllib.parse import urlsplit

from localmcp.errors import (
    AccessDenied,
    ConfigurationError,
    InvalidInput,
    LocalMCPError,
    MissingExtra,
    NotFound,
    Unavailable,
)
from localmcp.files import expand_home

NO_KEEPALIVE_MS = 2**31 - 1
"""Never, as gRPC has it: pymilvus pings every 10 s, and a Milvus Lite server closes a connection that is pinged more
often than every 5 minutes, with the call that is just on it. Each call has a time limit anyway."""
_NOT_LOADED = 101
_CONNECTING = 2
"""Milvus' one code for refused, unresolvable, silent and bad credentials; the gRPC status below says which."""


def parse_address(address: str) -> str:
    """Return what pymilvus takes; ConfigurationError for an address that cannot be one, or that holds a password."""
    if address.endswith(".db") and "://" not in address:
        return str(expand_home(address).absolute())
    uri = address if re.match("[a-z]+://|unix:", address) else f"http://{address}"
    try:
        parts = urlsplit(uri)
        is_address = parts.scheme == "unix" or (parts.scheme in ("http", "https", "tcp") and parts.port != 0)
    except ValueError:
        parts, is_address = urlsplit(""), False
    if parts.username or parts.password:
        raise ConfigurationError(
            "milvus_address must not hold a user or password.", hint="Use milvus_username and milvus_password."
        )
    if not is_address or not (parts.hostname or parts.scheme == "unix"):
        raise ConfigurationError(
            f"milvus_address = {address!r} is not the address of a server.",
            hint="Write http://HOST:19530, https://HOST:PORT, or the path of a Milvus Lite file that ends with .db.",
        )
    return uri


_importing = threading.Lock()


def load_library() -> ModuleType:
    """Return pymilvus, imported once; MissingExtra if it is not installed."""
    with _importing:
        if (loaded := sys.modules.get("pymilvus")) is not None:
            return loaded
        try:
            import dotenv

            # gRPC's own log goes to stderr, too.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
            # pymilvus would put a project's `.env` into the environment of this process.
            load_dotenv, dotenv.load_dotenv = dotenv.load_dotenv, bool
            try:
                import pymilvus
            finally:
                dotenv.load_dotenv = load_dotenv
        except ModuleNotFoundError as error:
            raise MissingExtra("Milvus", "milvus") from error
        # After the import, which sets levels and a handler on stderr.
        for name in ("pymilvus", "pymilvus.milvus_client", "milvus_lite", "grpc._server"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        return pymilvus


class NotLoaded(LocalMCPError):
    """The collection has to be loaded into memory first."""


class Client:
    """One connection to a server, made at the first call and made again after a failure. Thread-safe."""

    def __init__(
        self, uri: str, token: str = "", database: str = "", timeout: float = 0.0,
        fields: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:  # fmt: skip
        """`uri`: http(s)://host:port, unix:path, or a Milvus Lite file; `timeout`: seconds for one request.

        `fields`: collection of another program -> what is in it (text, vector, metadata) -> the name of that field.
        """
        self.uri, self.fields = uri, fields or {}
        self.is_file = uri.endswith(".db") and "://" not in uri
        # Milvus Lite reads all words again at the first search.
        self.timeout = timeout or (60.0 if self.is_file else 10.0)
        self._token, self._database = token, database
        self._lock = threading.Lock()
        self._client: Any = None

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of `pymilvus.MilvusClient`, bounded by the server's time-out.

        Unavailable, AccessDenied, NotFound, InvalidInput, as Milvus' error means.
        """
        return self.guard(lambda: getattr(self._connected(), method)(*arguments, timeout=self.timeout, **options))

    def guard(self, work: Callable[[], Any]) -> Any:
        """Run something of pymilvus, and translate its errors."""
        milvus_error = cast("type[Exception]", load_library().MilvusException)
        from grpc import RpcError

        try:
            return work()
        except (milvus_error, RpcError) as error:
            translated = translate_error(error, self.uri, self.timeout)
            if isinstance(translated, Unavailable):
                # The next call begins with a new connection, so that a server that is back is found at once.
                self._disconnect()
            raise translated from error

    def _connected(self) -> Any:
        with self._lock:
            if self._client is not None:
                return self._client
            if self.is_file and find_spec("milvus_lite") is None:
                raise MissingExtra(f"Milvus Lite ({self.uri})", "milvus-lite")
            self._client = load_library().MilvusClient(
                self.uri,
                token=self._token,
                db_name=self._database,
                timeout=self.timeout,
                dedicated=True,
                grpc_options={"grpc.keepalive_time_ms": NO_KEEPALIVE_MS},
                **({"secure": True} if self.uri.startswith("https:") else {}),
            )
            return self._client

    def _disconnect(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def close(self) -> None:
        """End the connection, and with a Milvus Lite file its server, which holds the file's lock."""
        self._disconnect()
        manager: Any = sys.modules.get("milvus_lite.server_manager")
        if self.is_file and manager is not None:
            manager.server_manager_instance.release_server(self.uri)


# ---------------------------------------------------------------- what Milvus' errors mean


def translate_error(error: Exception, server: str, timeout: float) -> LocalMCPError:
    """Return the error of localmcp that Milvus' error means; servers differ in codes and messages, and some mislead.

    `server`: the address, without credentials; `timeout`: seconds that the call could take.
    """
    status, details = "", ""
    # Some errors are their own cause, with a number as code.
    for cause in (error, error.__cause__):
        grpc_code: Any = getattr(cause, "code", None)
        if callable(grpc_code):
            status, details = str(getattr(grpc_code(), "name", "")), str(getattr(cause, "details", str)())
            break
    raw_code: Any = getattr(error, "code", 0)
    code = raw_code if isinstance(raw_code, int) else 0
    text = str(getattr(error, "message", "") or ("" if callable(raw_code) else error))
    # Without the server's stack trace.
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    message = first[:300].rstrip(".")
    if code == _NOT_LOADED or "not loaded" in message:
        return NotLoaded(f"Milvus at {server} has not loaded the collection: {message}.")
    if status in ("UNAUTHENTICATED", "PERMISSION_DENIED") or "auth check failure" in message:
        return AccessDenied(
            f"Milvus at {server} refused the credentials: {details or message}.",
            hint="Check milvus_username and milvus_password.",
        )
    if status == "DEADLINE_EXCEEDED" or (status != "UNAVAILABLE" and "Retry timeout" in message):
        return Unavailable(
            f"Milvus at {server} did not answer within {timeout:g} s.",
            hint="Check that the address and port are those of Milvus, that the server is healthy and that no "
            "firewall is between.",
        )
    if "Open local milvus failed" in message:
        return Unavailable(
            f"{server} cannot be opened by Milvus Lite.",
            hint="Only one process at a time may have it open; and it must have been made by milvus-lite 3 or later.",
        )
    if status == "UNAVAILABLE" or code == _CONNECTING:
        return Unavailable(
            f"Milvus at {server} cannot be reached.",
            hint="Check that the server runs, and milvus_address: its host, port and http or https.",
        )
    if status == "UNIMPLEMENTED":
        return Unavailable(f"Milvus at {server} is of a version that cannot do this.", hint="Use Milvus 2.4 or later.")
    message = message or details
    named = re.search(r"(database|collection|partition)\b.*(?:not found|not exist)", message)
    if missing := {800: "database", 100: "collection", 200: "partition"}.get(code) or (named and named[1]):
        no_such = f"Milvus at {server} has no such database" if missing == "database" else f"{missing} not found"
        return NotFound(no_such, hint=f"Milvus at {server} says: {message}.")
    if code in (1100, 6):
        return InvalidInput(f"Milvus at {server} cannot use the request: {message}.")
    return LocalMCPError(f"Milvus at {server} failed: {message or f'error {code}'}.")
