"""Options that several commands have, each declared once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Option = Callable[[Callable[..., Any]], Callable[..., Any]]

YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
COLLECTIONS = click.option(
    "-c", "--collection", "collections", multiple=True, help="Only this collection; may be repeated."
)


def collection_option(says: str = "Only this collection.") -> Option:
    """Return `--collection`, one at most."""
    return click.option("-c", "--collection", help=says)


def no_wait(says: str = "Return when everything is found by its words.") -> Option:
    """Return `--no-wait`, for a command that waits until passages have vectors."""
    return click.option("--no-wait", is_flag=True, help=says)
