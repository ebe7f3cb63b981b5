"""Keeps a widget alive when a message handler raises: the error is shown and the widget goes on."""

from __future__ import annotations

from textual.message import Message
from textual.message_pump import MessagePump


class ErrorGuard(MessagePump):
    """Textual ends the message loop of a part whose handler raised, which leaves a dead part on the screen."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            self.app._handle_exception(error)  # pyright: ignore[reportPrivateUsage]
