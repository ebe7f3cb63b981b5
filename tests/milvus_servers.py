"""Milvus for tests: a Milvus Lite file, `milvus-lite server` over loopback, and, if asked for, a server.

What is on that server is deleted (the package `milvus` 2.3.5 carries one):

    LOCALMCP_REAL_MILVUS=http://127.0.0.1:19530 pytest tests/milvus tests/records
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from localmcp.milvus.collection import Milvus

TIMEOUT = 30.0

needs_lite = pytest.mark.skipif(
    importlib.util.find_spec("pymilvus") is None or importlib.util.find_spec("milvus_lite") is None,
    reason="pip install 'localmcp[milvus-lite]'",
)
real_server = os.environ.get("LOCALMCP_REAL_MILVUS", "")
needs_real = pytest.mark.skipif(not real_server, reason="set LOCALMCP_REAL_MILVUS to the address of a server")


class LiteServer:
    """`milvus-lite server` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, or start it again, on the same port and folder."""
        command = [sys.executable, "-m", "milvus_lite", "server", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--data-dir", str(self.folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self.port, self.process)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until somebody listens on the port."""
    while process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(0.2)
            # A free port may be given to the probe itself, which is then connected with itself.
            if probe.connect_ex(("127.0.0.1", port)) == 0 and probe.getsockname() != probe.getpeername():
                return
        # The server computes for seconds before it listens; asking all the time would take half of the processor.
        time.sleep(0.05)
    raise RuntimeError(f"the server ended with {process.returncode}")


@cache
def shared_server() -> LiteServer:
    """One server for the whole run."""
    server = LiteServer(Path(tempfile.mkdtemp(prefix="milvus")) / "data")
    atexit.register(server.kill)
    return server


def open_empty(uri: str, timeout: float = TIMEOUT) -> Milvus:
    """That server, with nothing in it."""
    milvus = Milvus(uri, timeout=timeout)
    for name in milvus.names():
        milvus.drop(name)
    return milvus


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[Milvus]:
    """An empty Milvus of that kind."""
    uri = {"milvus-lite": str(folder / "milvus.db"), "milvus-real": real_server}.get(kind) or shared_server().uri
    milvus = open_empty(uri, timeout=60)
    try:
        yield milvus
    finally:
        milvus.close()


marks: dict[str, pytest.MarkDecorator] = {
    "milvus-lite": needs_lite,
    "milvus-server": needs_lite,
    "milvus-real": needs_real,
}
milvus_kinds = [pytest.param(name, marks=marks[name]) for name in marks]
"""For `pytest.fixture(params=...)`: what `opened` takes, skipped where it cannot run."""
