"""`localmcp config`: the settings in force, where each comes from, and `config.toml`."""

from __future__ import annotations

from typing import Any

import click

from localmcp import config as configuration
from localmcp.cli import render
from localmcp.cli.session import Session, group, pass_session
from localmcp.doctor.settings import change_setting
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
    described = configuration.settings_in_force(session.settings)
    for setting in described:
        setting["from"] = _origin(session, setting["name"])
    if session.as_json:
        session.print_json({"file": str(configuration.config_file()), "settings": described})
        return
    rows = [(setting["name"], _shown(setting["value"]), setting["from"], setting["says"]) for setting in described]
    session.print_table(("setting", "value", "from", "what it does"), rows)
    session.remark(f"Change one with: localmcp config set NAME VALUE   ({configuration.config_file()})")


@config.command("get")
@click.argument("name")
@pass_session
def get_setting(session: Session, name: str) -> None:
    """Print one setting's value."""
    value = _value(session, _checked_name(name))
    session.answer({name: value}, lambda _: render.echo(_shown(value)))


@config.command("set")
@click.argument("name")
@click.argument("value")
@pass_session
def set_setting(session: Session, name: str, value: str) -> None:
    """Write one setting to config.toml; its comments and order are kept."""
    path = change_setting(_checked_name(name), value)
    session.answer({name: _value(session, name), "file": str(path)}, lambda _: session.note(f"Written to {path}"))
    where = _origin(session, name)
    if where not in ("config.toml", "default"):
        session.warn(f"{where} is set as well, and wins.")


@config.command("unset")
@click.argument("name")
@pass_session
def unset_setting(session: Session, name: str) -> None:
    """Remove one setting from config.toml, so that its default holds."""
    path = configuration.write_setting(_checked_name(name), None)
    session.answer({name: _value(session, name), "file": str(path)}, lambda _: session.note(f"Removed from {path}"))


@config.command("path")
@pass_session
def print_path(session: Session) -> None:
    """Print where config.toml is (or would be)."""
    path = configuration.config_file()
    session.answer({"file": str(path), "exists": path.exists()}, lambda _: render.echo(str(path)))


def _checked_name(name: str) -> str:
    """Return the name of a setting, if it is one; an error names the nearest."""
    if name in configuration.setting_names():
        return name
    names = configuration.setting_names()
    raise ConfigurationError(f"Unknown setting '{name}'.", hint=did_you_mean(name, names, choices(names)))


def _value(session: Session, name: str) -> Any:
    return configuration.shown_value(name, getattr(session.settings, name))


def _shown(value: Any) -> str:
    return "(none)" if value == [] else configuration.setting_text(value)


def _origin(session: Session, name: str) -> str:
    """Return where the value in force comes from."""
    return "--db" if name == "database" and session.database else configuration.origin_of(name)
