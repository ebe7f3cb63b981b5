"""The only module that imports pymilvus: where the server is, one client per server, and a time-out on every call.

pymilvus takes half a second to import, loads a `.env` file of a folder above, and writes tracebacks to stderr by a
separate handler; none of that happens before the first call, and the last two never.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from urllib.parse import urlsplit

from localmcp.config import Settings
from localmcp.errors import ConfigurationError, LocalMCPError, MissingExtra
from localmcp.files import expand_home
from localmcp.milvus.failures import translate_error

SCHEMES = ("http", "https", "tcp", "unix")
NO_KEEPALIVE_MS = 2**31 - 1
"""Never, as gRPC has it: pymilvus pings every 10 s, and a Milvus Lite server closes a connection that is pinged more
often than every 5 minutes, with the call that is just on it. Each call has a time limit anyway."""


@dataclass(frozen=True, slots=True)
class Server:
    """The address of Milvus, and the credentials."""

    uri: str
    """What pymilvus is given: http(s)://host:port, unix:path, or the path of a Milvus Lite file."""
    token: str = field(default="", repr=False)
    database: str = ""
    ca_file: str = ""
    timeout: float = 10.0
    """Seconds for one request."""

    @property
    def is_file(self) -> bool:
        """A Milvus Lite file, served inside this process."""
        return self.uri.endswith(".db")


def read_server(settings: Settings) -> Server | None:
    """Return the server that the settings name; None when they name none.

    Raises:
        ConfigurationError: an address that cannot be one, or that holds a password.
    """
    address = settings.milvus_address.strip()
    if not address:
        return None
    token = settings.milvus_token
    if not token and settings.milvus_username:
        token = f"{settings.milvus_username}:{settings.milvus_password}"
    uri = _parse_address(address, settings.milvus_tls)
    ca_file = str(expand_home(settings.milvus_ca_file)) if settings.milvus_ca_file else ""
    return Server(uri, token, settings.milvus_database, ca_file, settings.milvus_timeout)


def _parse_address(address: str, tls: bool) -> str:
    if address.endswith(".db") and "://" not in address:
        return str(expand_home(address).absolute())
    if address.startswith("unix:"):
        return address
    if "://" not in address:
        address = f"{'https' if tls else 'http'}://{address}"
    try:
        parts = urlsplit(address)
        port_is_valid = parts.port != 0
    except ValueError:
        parts, port_is_valid = urlsplit("http://"), False
    if parts.username or parts.password:
        raise ConfigurationError(
            "milvus_address must not hold a user or password.", hint="Use milvus_username and milvus_password."
        )
    if parts.scheme not in SCHEMES or not parts.hostname or not port_is_valid:
        raise ConfigurationError(
            f"milvus_address = {address!r} is not the address of a server.",
            hint="Write http://HOST:19530, https://HOST:PORT, or the path of a Milvus Lite file that ends with .db.",
        )
    return re.sub("^http:", "https:", address) if tls else address


_importing = threading.Lock()


def load_library() -> ModuleType:
    """pymilvus, imported once.

    Raises:
        MissingExtra: it is not installed.
    """
    with _importing:
        try:
            return _import_quietly()
        except ModuleNotFoundError as error:
            raise MissingExtra("Milvus", "milvus") from error


def _import_quietly() -> ModuleType:
    import sys

    loaded = sys.modules.get("pymilvus")
    if loaded is not None:
        return loaded
    import dotenv

    load_dotenv = dotenv.load_dotenv
    # gRPC's own log goes to stderr, too.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # pymilvus would put a project's `.env` into the environment of this process.
    setattr(dotenv, "load_dotenv", _load_nothing)  # noqa: B010
    try:
        import pymilvus
    finally:
        setattr(dotenv, "load_dotenv", load_dotenv)  # noqa: B010
    # After the import, which sets levels and a handler on stderr.
    for name in ("pymilvus", "pymilvus.milvus_client", "pymilvus.bulk_writer", "milvus_lite", "grpc._server"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return pymilvus


def _load_nothing(*_args: Any, **_options: Any) -> bool:
    return False


class Client:
    """One connection to a server, made at the first call and made again after a failure. Thread-safe."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.users = 0
        self._lock = threading.Lock()
        self._client: Any = None
        self._failure: tuple[float, LocalMCPError] | None = None

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of `pymilvus.MilvusClient`, bounded by the server's time-out.

        Raises:
            Unavailable, AccessDenied, NotFound, ModelMismatch, InvalidInput: what Milvus' error means.
        """
        client = self._connected()
        return self.guard(lambda: getattr(client, method)(*arguments, timeout=self.server.timeout, **options))

    def guard(self, work: Callable[[], Any]) -> Any:
        """Run something of pymilvus, and translate its errors."""
        from grpc import RpcError

        milvus_error = cast("type[Exception]", load_library().MilvusException)
        try:
            return work()
        except (milvus_error, RpcError) as error:
            translated = translate_error(error, self.server.uri, self.server.timeout)
            if translated.code == "unavailable":
                # The next call begins with a new connection, so that a server that is back is found at once.
                self.close()
            raise translated from error

    def _connected(self) -> Any:
        asked = time.monotonic()
        with self._lock:
            if self._client is not None:
                return self._client
            if self._failure and self._failure[0] >= asked:
                # Another thread has just waited for the same server: this one need not wait again.
                raise self._failure[1]
            try:
                self._client = self._connect()
            except LocalMCPError as error:
                self._failure = (time.monotonic(), error)
                raise
            return self._client

    def _connect(self) -> Any:
        library = load_library()
        server = self.server
        if server.is_file:
            _check_file(Path(server.uri))
        if server.ca_file and not Path(server.ca_file).is_file():
            raise ConfigurationError(f"milvus_ca_file = {server.ca_file!r}: there is no such file.")
        options: dict[str, Any] = {"grpc_options": {"grpc.keepalive_time_ms": NO_KEEPALIVE_MS}}
        if server.ca_file:
            options["server_pem_path"] = server.ca_file
        if server.uri.startswith("https:"):
            options["secure"] = True
        from grpc import RpcError

        try:
            return library.MilvusClient(
                server.uri,
                token=server.token,
                db_name=server.database,
                timeout=server.timeout,
                dedicated=True,
                **options,
            )
        except (library.MilvusException, RpcError) as error:
            raise translate_error(error, server.uri, server.timeout) from error

    def close(self) -> None:
        """End the connection; a later call makes a new one."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _check_file(path: Path) -> None:
    from importlib.util import find_spec

    if find_spec("milvus_lite") is None:
        raise MissingExtra(f"Milvus Lite ({path})", "milvus-lite")
    if path.is_file():
        raise ConfigurationError(f"milvus_address = {str(path)!r} is a file of another program.")
    if not path.parent.is_dir():
        raise ConfigurationError(f"milvus_address = {str(path)!r}: its folder does not exist.", hint="Make it first.")


_clients: dict[Server, Client] = {}
_sharing = threading.Lock()


def share_client(server: Server) -> Client:
    """Return the client of that server: one for all who have the same address, credentials and database."""
    with _sharing:
        client = _clients.setdefault(server, Client(server))
        client.users += 1
        return client


def release_client(client: Client) -> None:
    """Give a shared client back; the last one closes it."""
    with _sharing:
        client.users -= 1
        if client.users > 0:
            return
        del _clients[client.server]
        client.close()
        if client.server.is_file and all(other.server.uri != client.server.uri for other in _clients.values()):
            _stop_lite(client.server.uri)


def _stop_lite(path: str) -> None:
    """End the server of a Milvus Lite file, which holds the file's lock."""
    import sys

    manager: Any = sys.modules.get("milvus_lite.server_manager")
    if manager is not None:
        manager.server_manager_instance.release_server(path)
