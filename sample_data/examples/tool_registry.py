"""Many tools behind two, and more for each user: an MCP server with localmcp's tool registry.

    python tool_registry.py                     serves http://127.0.0.1:8090/mcp
    python tool_registry.py --port 9000

A client sees `tool_search` and `execute_tool` only. Behind them are database, e-mail and document tools for everybody,
and for a request with the header `X-User-ID: anna` also Anna's own notes, which nobody else can find or call. E-mails
go to a list in memory: nothing leaves this machine.

    curl http://127.0.0.1:8090/mcp -H 'Content-Type: application/json' -H 'X-User-ID: anna' -d '{"jsonrpc": "2.0",
      "id": 1, "method": "tools/call", "params": {"name": "tool_search", "arguments": {"query": "notes"}}}'
"""

from __future__ import annotations

import argparse
import sqlite3
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server import MCPServer

from localmcp import ToolNotFound, ToolRegistry, with_request_providers
from localmcp.server.tool_registry import ToolDefinition

# ---------------------------------------------------------------- tools for everybody


class Shop:
    """A small database."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", check_same_thread=False)
        self.database.executescript(
            """
            create table orders (id integer primary key, customer text, total real);
            insert into orders (customer, total) values ('Anna', 12.5), ('Bruno', 80), ('Anna', 7.25);
            pragma query_only = on;
            """
        )

    def sql_query(self, query: str) -> list[dict[str, Any]]:
        """Run a SQL query on the orders of the shop."""
        cursor = self.database.execute(query)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchmany(100)]

    def list_tables(self) -> list[str]:
        """List the tables of the database."""
        return [name for (name,) in self.database.execute("select name from sqlite_schema where type = 'table'")]


class Mailbox:
    """E-mails that were sent, as far as this example sends them."""

    def __init__(self) -> None:
        self.sent: list[dict[str, str]] = []

    def send_email(self, to: str, subject: str, body: str) -> str:
        """Send an email to a recipient."""
        self.sent.append({"to": to, "subject": subject, "body": body})
        return f"Email sent to {to}"


class Documents:
    """Texts by title."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def create_document(self, title: str, text: str) -> str:
        """Create a document, or replace the one with that title."""
        self.texts[title] = text
        return f"Created '{title}' with {len(text.split())} words"

    def find_documents(self, word: str) -> list[str]:
        """Find the titles of documents that contain a word."""
        return [title for title, text in self.texts.items() if word.lower() in text.lower()]


def build_registry() -> ToolRegistry:
    """Every tool that all users have."""
    registry = ToolRegistry()
    shop, mailbox, documents = Shop(), Mailbox(), Documents()
    registry.register_tool(shop.sql_query, "database", "sql", "query")
    registry.register_tool(shop.list_tables, "database", "sql", "schema")
    registry.register_tool(documents.create_document, "document", "write", "text")
    registry.register_tool(documents.find_documents, "document", "search", "text")
    # The same with a definition of its own, where type hints do not say enough.
    registry.register_tool(
        ToolDefinition(
            "send_email",
            "Send an email to a recipient",
            {
                "type": "object",
                "properties": {
                    "to": {"type": "string", "description": "Recipient email"},
                    "subject": {"type": "string", "description": "Email subject"},
                    "body": {"type": "string", "description": "Email body"},
                },
                "required": ["to", "subject", "body"],
            },
        ),
        mailbox.send_email,
        "email",
        "communication",
        "smtp",
    )
    return registry


# ---------------------------------------------------------------- tools of one user


class UserNotes:
    """The notes of one user, as a provider: what is listed, what a tool looks like, and the call."""

    notes: defaultdict[str, list[str]] = defaultdict(list)

    def __init__(self, user: str) -> None:
        self.user = user

    def list_tools(self) -> list[ToolDefinition]:
        text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        nothing = {"type": "object", "properties": {}}
        keywords = ("notes", "remember")
        return [
            ToolDefinition("add_note", f"Add a note for {self.user}", text, keywords),
            ToolDefinition("my_notes", f"List the notes of {self.user}", nothing, keywords),
        ]

    def get_tool(self, name: str) -> ToolDefinition | None:
        return next((tool for tool in self.list_tools() if tool.name == name), None)

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        if name == "add_note":
            self.notes[self.user].append(arguments["text"])
            return f"Noted for {self.user}"
        if name == "my_notes":
            return self.notes[self.user]
        raise ToolNotFound(name)


class ToolsOfUser:
    """ASGI middleware: the tools of the user in `X-User-ID` exist for the length of that request."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        user = dict(scope.get("headers", ())).get(b"x-user-id", b"").decode("latin-1")
        if not user:
            await self.app(scope, receive, send)
            return
        with with_request_providers(UserNotes(user)):
            await self.app(scope, receive, send)


# ---------------------------------------------------------------- the server


def build_server() -> MCPServer[Any]:
    """A server that lists two tools."""
    server = MCPServer("tool-registry-example", version="1.0.0")
    build_registry().attach(server)
    return server


def build_app(server: MCPServer[Any]) -> Any:
    """The server over HTTP, with the middleware around it."""
    app = server.streamable_http_app(stateless_http=True, json_response=True)
    app.add_middleware(ToolsOfUser)
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the example over HTTP on this machine.")
    parser.add_argument("--port", type=int, default=8090)
    port = parser.parse_args().port
    import uvicorn

    print(f"Serving http://127.0.0.1:{port}/mcp", flush=True)
    uvicorn.run(build_app(build_server()), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
