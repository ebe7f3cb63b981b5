"""`localmcp config`: the settings in force, where each comes from, and `config.toml`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from localmcp import config as configuration
from localmcp.cli import render
from localmcp.cli.session import Session, group, pass_session
from localmcp.errors import ConfigurationError
from localmcp.humanize import choices
from localmcp.schemas import did_you_mean


@group()
def config() -> None:
    """Show and change the settings.

    A value comes from the command line, else the environment, else config.toml, else its default.
    """


@config.command("show")
@pass_session
def show_settings(session: Session) -> None:
    """Show every setting: its value, where it comes from, and what it does."""
    settings = configuration.settings_in_force(session.settings)
    for setting in settings:
        setting["from"] = _origin(session, setting["name"])
    rows = [(item["name"], configuration.setting_text(item["value"]), item["from"], item["says"]) for item in settings]
    answer = {"file": str(configuration.config_file()), "settings": settings}
    session.answer(answer, lambda _: session.print_table(("setting", "value", "from", "what it does"), rows))


@config.command("get")
@click.argument("name")
@pass_session
def get_setting(session: Session, name: str) -> None:
    """Print one setting's value."""
    value = configuration.shown_value(_checked_name(name), getattr(session.settings, name))
    session.answer({name: value}, lambda _: render.echo(configuration.setting_text(value)))


@config.command("set")
@click.argument("name")
@click.argument("value")
@pass_session
def set_setting(session: Session, name: str, value: str) -> None:
    """Write one setting to config.toml; its comments and order are kept."""
    name = _checked_name(name)
    # Checked before it is written; no model is opened for it.
    if name == "model":
        from localmcp.models import parse_spec

        spec = parse_spec(value)
        if spec.kind == "folder" and not os.path.isdir(spec.target):
            raise ConfigurationError(f"model is '{value}', but there is no folder {spec.target}.")
    elif name == "collection":
        from localmcp.index.collections import checked_collection_name

        checked_collection_name(value)
    elif name == "language_model" and value:
        from localmcp.models.language_model import parse_address

        parse_address(value)
    _tell(session, name, configuration.write_setting(name, value), "Written to")
    where = _origin(session, name)
    if where not in ("config.toml", "default"):
        session.warn(f"{where} is set as well, and wins.")


@config.command("unset")
@click.argument("name")
@pass_session
def unset_setting(session: Session, name: str) -> None:
    """Remove one setting from config.toml, so that its default holds."""
    _tell(session, name, configuration.write_setting(_checked_name(name), None), "Removed from")


@config.command("path")
@pass_session
def print_path(session: Session) -> None:
    """Print where config.toml is (or would be)."""
    path = configuration.config_file()
    session.answer({"file": str(path), "exists": path.exists()}, str(path))


def _checked_name(name: str) -> str:
    """Return the name of a setting, if it is one; an error names the nearest."""
    names = configuration.setting_names()
    if name in names:
        return name
    raise ConfigurationError(f"Unknown setting '{name}'.", hint=did_you_mean(name, names, choices(names)))


def _tell(session: Session, name: str, path: Path, verb: str) -> None:
    value = configuration.shown_value(name, getattr(session.settings, name))
    session.answer({name: value, "file": str(path)})
    session.note(f"{verb} {path}")


def _origin(session: Session, name: str) -> str:
    """Return where the value in force comes from."""
    return "--db" if name == "database" and session.database else configuration.origin_of(name)
