"""Secrets are taken out of what is kept, wherever they stand; ordinary words stay."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localmcp.masking import MASK, mask_arguments, mask_secrets, mask_text

LETTERS = string.ascii_letters + string.digits
KEYS = st.one_of(
    st.text(LETTERS, min_size=32, max_size=32).map("mcp_".__add__),
    st.text(LETTERS + "-_", min_size=20, max_size=60).map("sk-".__add__),
    st.text(LETTERS, min_size=36, max_size=36).map("ghp_".__add__),
    st.text(string.ascii_uppercase + string.digits, min_size=16, max_size=16).map("AKIA".__add__),
)
SECRET_NAMES = st.sampled_from(
    ["key", "api_key", "apiKey", "API-Key", "x-api-key", "token", "accessToken", "password", "PASSWORD", "dbPassword"]
    + ["client_secret", "Authorization", "credentials", "sessioncookie", "privateKey", "passphrase", "auth"]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(before=st.text(st.characters(blacklist_categories=("L", "N"))), key=KEYS, after=st.text())
def test_a_key_never_survives_in_a_text(before: str, key: str, after: str) -> None:
    assert key not in mask_text(before + key + after)


@given(before=st.text(), key=st.text(LETTERS, min_size=32, max_size=32).map("mcp_".__add__))
def test_a_key_of_ours_is_found_even_where_it_sticks_to_a_word(before: str, key: str) -> None:
    assert key not in mask_text(before + key)


@given(key=KEYS, length=st.integers(12, 30))
def test_the_beginning_of_a_key_that_was_cut_is_masked_too(key: str, length: int) -> None:
    if any(each.isupper() or each.isdigit() for each in key[4:length]):
        assert key[:length] not in mask_text(f"use {key[:length]}")


@settings(max_examples=30)
@given(name=SECRET_NAMES, secret=st.text(min_size=6), inner=JSON_VALUES)
def test_what_stands_under_a_secret_name_goes_whole(name: str, secret: str, inner: object) -> None:
    masked = mask_secrets({"outer": [{name: {"deep": secret, "more": inner}}]})
    assert masked == {"outer": [{name: MASK}]}


@settings(max_examples=30)
@given(value=JSON_VALUES, key=KEYS)
def test_masking_keeps_the_shape_and_never_fails(value: object, key: str) -> None:
    masked = mask_secrets({"value": value, "found": [key]})
    assert masked["found"] == [MASK]
    assert type(masked["value"]) is type(value) or masked["value"] == MASK


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abc.def-ghi", "Authorization: ***"),
        ("send bearer eyJhbGciOi.eyJzdWIi.c2ln now", "send *** now"),
        ("Basic dXNlcjpwYXNz", "***"),
        ("password=hunter2 and more", "password=*** and more"),
        ("DB_PASSWORD: 'two words' end", "DB_PASSWORD: *** end"),
        ('{"api_key": "x y z", "q": 1}', '{"api_key": ***, "q": 1}'),
        (r"{\"token\": \"abc def\"}", r"{\"token\": ***}"),
        ("https://anna:s3cret@host/path", "https://anna:***@host/path"),
        ("https://host/?access_key=abc&page=2", "https://host/?access_key=***&page=2"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- after", "*** after"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE and it was cut", "***"),
        ("github_pat_11ABCDEFG0abcdefghij", "***"),
        ("xoxb-123456789012-abcdef", "***"),
    ],
)
def test_secrets_are_known_by_how_they_look(text: str, masked: str) -> None:
    assert mask_text(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "how do I restore a backup?",
        "task-management with sk learn",
        "what does a token cost, and which keywords help",
        "basic authentication and bearer of news",
        "the tool mcp_filesystem_read",
        "https://host:8080/path?page=2",
        "quick start: create a blueprint",
        "/home/anna/keys/readme.md",
    ],
)
def test_ordinary_texts_stay_as_they_are(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "arguments, shown",
    [
        ("mcp-remote https://a.org/s/0a9b8c7d6e5f4a3b2c1d/mcp?key=abc", "mcp-remote https://a.org/s/***/mcp"),
        ("--token abc --api-key=abc -v", "--token *** --api-key=*** -v"),
        ("-e A_TOKEN=abc postgresql://ada:p@ss@host/shop", "-e A_TOKEN=*** postgresql://host/shop"),
        ("-e A_TOKEN=${A_TOKEN} --token ${OTHER} https://a.org/${KEY}", None),
        ("--token --repository /home/ada/2026-01-02-notes ghcr.io/github/github-mcp-server:v1", None),
    ],
)
def test_arguments_are_shown_without_secrets_and_with_the_names_of_variables(arguments: str, shown: str | None) -> None:
    assert mask_arguments(arguments.split()) == (shown or arguments).split()


def test_a_secret_that_is_itself_a_name_is_masked() -> None:
    assert mask_secrets({"sk-abcdefgh12345678": 1}) == {MASK: 1}
