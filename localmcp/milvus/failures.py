"""Translate Milvus' errors: its own codes and messages differ between servers, and some mislead."""

from __future__ import annotations

import re
from typing import Any

from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, ModelMismatch, NotFound, Unavailable

NOT_LOADED = 101
_MISSING_COLLECTION, _MISSING_PARTITION, _MISSING_DATABASE = 100, 200, 800
_CONNECTING = 2
"""Milvus' one code for refused, unresolvable, silent and bad credentials; the gRPC status below says which."""


def translate_error(error: Exception, server: str, timeout: float) -> LocalMCPError:
    """Return the error of localmcp that Milvus' error means.

    Args:
        server: the address, without credentials.
        timeout: seconds that the call could take.
    """
    status, details = _grpc_status(error)
    code, message = _milvus_code(error), _milvus_message(error)
    translated = _connection_error(status, details, code, message, server, timeout)
    return translated or _request_error(code, message or details, server)


def is_not_loaded(error: Exception) -> bool:
    """Return whether the collection has to be loaded into memory first."""
    return _milvus_code(error) == NOT_LOADED or "not loaded" in _milvus_message(error)


def _connection_error(
    status: str, details: str, code: int, message: str, server: str, timeout: float
) -> LocalMCPError | None:
    if status in ("UNAUTHENTICATED", "PERMISSION_DENIED") or "auth check failure" in message:
        return AccessDenied(
            f"Milvus at {server} refused the credentials: {details or message}.",
            hint="Check milvus_username and milvus_password, or milvus_token.",
        )
    if status == "DEADLINE_EXCEEDED" or (status != "UNAVAILABLE" and "Retry timeout" in message):
        return Unavailable(
            f"Milvus at {server} did not answer within {timeout:g} s.",
            hint="Check that the address and port are those of Milvus, that the server is healthy and that no "
            "firewall is between; milvus_timeout sets how long to wait.",
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
    return None


def _request_error(code: int, message: str, server: str) -> LocalMCPError:
    if code == _MISSING_DATABASE or re.search(r"database .*(not found|not exist)", message):
        return NotFound(f"Milvus at {server} has no such database: {message}.", hint="Check milvus_database.")
    if code == _MISSING_COLLECTION or "collection not found" in message:
        return NotFound("collection not found", hint=f"Milvus at {server} says: {message}.")
    if code == _MISSING_PARTITION or re.search(r"partition (name )?\S+ not found", message):
        return NotFound("partition not found", hint=f"Milvus at {server} says: {message}.")
    if code == NOT_LOADED:
        return Unavailable(f"Milvus at {server} has not loaded the collection yet.", hint="Try again in a while.")
    if re.search(r"dimension|expected dim|divide the dim|get_sizeof", message):
        return ModelMismatch(f"The vectors are not of the length that the collection holds: {message}.")
    if "memory" in message and "insufficient" in message.lower():
        return Unavailable(f"Milvus at {server} has too little memory: {message}.")
    if code in (1100, 6):
        return InvalidInput(f"Milvus at {server} cannot use the request: {message}.")
    return LocalMCPError(f"Milvus at {server} failed: {message or f'error {code}'}.")


def _grpc_status(error: Exception) -> tuple[str, str]:
    """Name of the gRPC status, and its details. Some errors of pymilvus are their own cause, with a number as code."""
    for cause in (error, error.__cause__):
        code: Any = getattr(cause, "code", None)
        if callable(code):
            details: Any = getattr(cause, "details", None)
            return str(getattr(code(), "name", "")), str(details() if callable(details) else "")
    return "", ""


def _milvus_code(error: Exception) -> int:
    code: Any = getattr(error, "code", 0)
    return int(code) if isinstance(code, int) else 0


def _milvus_message(error: Exception) -> str:
    """Return the first line, without the server's stack trace."""
    text = str(getattr(error, "message", "") or "")
    if not text and not callable(getattr(error, "code", None)):
        text = str(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first[:300].rstrip(".")
