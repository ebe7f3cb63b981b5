"""Another program that works on the same Milvus server."""

from typing import Any

from localmcp.milvus.client import NO_KEEPALIVE_MS, load_library


def connect_program(uri: str) -> Any:
    """Return a client of pymilvus, without the pings for which Milvus Lite closes a connection."""
    return load_library().MilvusClient(uri, dedicated=True, grpc_options={"grpc.keepalive_time_ms": NO_KEEPALIVE_MS})
