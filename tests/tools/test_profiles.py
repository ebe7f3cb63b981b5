"""What a profile allows, and that none is overlooked because of a slip in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localmcp.errors import ConfigurationError
from localmcp.tools import Scope
from localmcp.tools.base import profiles_file, read_profile

PROFILES = """
[work]
tools = ["search", "tool_search", "execute_tool"]
providers = ["mcp:github"]
collections = ["work"]
rights = ["read"]

[open]

[own]
providers = []
rights = "write"

[wrong]
tool = ["search"]

[list]
tools = "search"

[right]
rights = ["delete"]

[none]
rights = []
"""


@pytest.fixture(autouse=True)
def profiles() -> None:
    profiles_file().parent.mkdir(parents=True, exist_ok=True)
    profiles_file().write_text(PROFILES + "[more]\ncollections = [1]\n", encoding="utf-8")


def test_a_profile_limits_a_scope_in_what_it_names() -> None:
    scope = replace(Scope(caller="stdio"), **read_profile("work"))
    assert scope == Scope(
        caller="stdio",
        tools=frozenset({"search", "tool_search", "execute_tool"}),
        provider_names=frozenset({"mcp:github"}),
        collections=frozenset({"work"}),
        rights=frozenset({"read"}),
    )


def test_an_empty_profile_limits_nothing_and_an_empty_list_allows_none() -> None:
    assert replace(Scope(), **read_profile("open")) == Scope()
    assert read_profile("own") == {"provider_names": frozenset(), "rights": frozenset({"read", "write"})}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("home", "There is no profile 'home'"),
        ("wrong", "Unknown key 'tool' in [wrong]"),
        ("list", "tools = 'search' in [list]"),
        ("right", "must be one of read, write, admin"),
        ("none", "rights = []"),
        ("more", "must be a list of names"),
    ],
)
def test_a_slip_is_told_and_never_passed_over(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_profile(name)
    assert message in caught.value.message and "profiles.toml" in caught.value.message


@pytest.mark.parametrize("content", [b"[work", b"work = 1", b"\xff"])
def test_a_file_that_is_no_table_of_tables_is_refused(content: bytes) -> None:
    profiles_file().write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"profiles\.toml"):
        read_profile("work")


def test_without_a_file_the_way_to_one_is_shown() -> None:
    profiles_file().unlink()
    with pytest.raises(ConfigurationError) as caught:
        read_profile("work")
    assert caught.value.hint is not None and "[work]" in caught.value.hint
