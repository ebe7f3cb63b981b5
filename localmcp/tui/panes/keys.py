"""Keys: who may call over HTTP, what each key opens, and taking it back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.getters import query_one
from textual.widgets import ContentSwitcher, Static

from localmcp.errors import InvalidInput
from localmcp.humanize import local_time
from localmcp.schemas import Json
from localmcp.tui.dialogs import TextScreen, ask_screen, confirm
from localmcp.tui.form_screen import FormScreen
from localmcp.tui.pane import FilterLine, Pane
from localmcp.tui.table import Table

if TYPE_CHECKING:
    from localmcp.api_keys.key_info import KeyInfo, NewKey

EMPTY = (
    "[b]No API keys yet[/b]\n\n"
    "Whoever calls over HTTP needs one; an assistant that starts localmcp itself does not.\n\n"
    "[b]a[/b]  make one\n\n[$muted]from a shell: localmcp keys create --name editor[/]"
)
FORM: Json = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "description": "What you will know it by"},
        "scope": {"enum": ["read", "write", "admin"], "default": "read", "description": "Each implies those before it"},
        "collections": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Open only these, one a line; none named = all",
        },
        "days": {"type": "integer", "description": "How long it holds; empty = until it is revoked"},
    },
}
STATUS_TONES = {"revoked": "error", "expired": "warning"}


class KeysPane(Pane):
    TITLE, KEY_GROUP = "Keys", "keys"
    ABOUT = (
        "API keys for calls over HTTP (localmcp serve --http). A key is shown once, when it is made; the file keeps "
        "only a hash of it. A key that is revoked is refused at once, in every process."
    )

    views = query_one("#keys-views", ContentSwitcher)
    table = query_one("#key-table", Table)
    keys: Sequence[KeyInfo] = ()
    """Those that are shown."""

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial="no-keys", classes="split", id="keys-views"):
            with VerticalScroll(classes="framed", id="no-keys"):
                yield Static(Content.from_markup(EMPTY))
            yield Table(classes="framed", id="key-table", cursor_type="row")
        yield FilterLine("Only keys that hold…", id="key-filter")

    def on_mount(self) -> None:
        self.table.border_title = "API keys"
        self.table.add_columns("name", "begins with", "may", "opens", "state", "used", "last", "ends")

    @property
    def chosen(self) -> KeyInfo | None:
        """The key that is highlighted."""
        return self.table.chosen(self.keys)

    def reload(self) -> None:
        if self.session.is_open:
            self.ask("keys", lambda: self.session.look(lambda w: w.api_keys.list()), self._show)

    def _show(self, keys: list[KeyInfo]) -> None:
        self.keys = [key for key in keys if self.words.casefold() in " ".join(_cells(key)).casefold()]
        self.table.refill((_cells(key), key.id, STATUS_TONES.get(key.status, "")) for key in self.keys)
        self.views.current = "key-table" if keys else "no-keys"
        self.refresh_bindings()
        if not self.words:
            self.keep_focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return bool(self.keys) if action in ("revoke", "delete") else super().check_action(action, parameters)

    def action_create(self) -> None:
        ask_screen(self, FormScreen("Make an API key", FORM, self._create), self._show_new)

    def _create(self, fields: Json) -> NewKey:
        scopes, ends = (fields.get("scope", "read"),), _end_after(fields.get("days"))
        options: Json = {"scopes": scopes, "collections": fields.get("collections"), "expires_at": ends}
        return self.session.look(lambda w: w.api_keys.create(name=fields["name"], **options))

    def _show_new(self, made: NewKey) -> None:
        words = Content.assemble(
            (made.key, "bold $accent"), "\n\nSave it now: it is not shown again. ", ("y", "bold"), " copies it."
        )
        self.app.push_screen(TextScreen(f"The key “{made.info.name}”", words, copy=made.key))
        self.reload()

    def action_revoke(self) -> None:
        self._end("Revoke", "Whoever uses it is refused from the next call on. It stays listed.")

    def action_delete(self) -> None:
        self._end("Delete", "It is refused from the next call on, and no longer listed.")

    def _end(self, action: str, more: str) -> None:
        if key := self.chosen:
            confirm(self, f"{action} “{key.name or key.prefix}”?", more, action, lambda: self._do(action.lower(), key))

    def _do(self, action: str, key: KeyInfo) -> None:
        def done(_info: Any) -> None:
            self.app.notify(f"{key.name or key.prefix} is {action}d.")
            self.reload()

        self.ask("change", lambda: self.session.look(lambda w: getattr(w.api_keys, action)(key.id)), done)


def _end_after(days: int | None) -> str | None:
    """Return when a key ends that holds for so many days from now.

    Raises:
        InvalidInput: not a number of days that a key can hold.
    """
    if days is None:
        return None
    if not 1 <= days <= 36_500:
        raise InvalidInput(f"days: {days} must be between 1 and 36500.")
    return (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")


def _cells(key: KeyInfo) -> list[str]:
    opens = "everything" if key.collections is None else ", ".join(key.collections) or "nothing"
    last = local_time(key.last_used_at)[:16] if key.last_used_at else "never"
    ends = local_time(key.expires_at)[:10] if key.expires_at else ""
    return [key.name, f"{key.prefix}…", ", ".join(key.scopes), opens, key.status, f"{key.uses:,}", last, ends]
