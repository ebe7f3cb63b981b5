"""Words that people use for one another when they ask for a tool: synonyms and kinds of action."""

from __future__ import annotations

from functools import cache

from localmcp.wording.normalize import stem

ACTIONS: dict[str, str] = {
    "read": """get read show list view display fetch open see tell check describe inspect print retrieve what which who
        where when how why is are did does look explain status count watch monitor preview browse""",
    "find": "find search look locate query lookup discover where google",
    "create": """create make add new build write generate draft open insert compose draw log save store jot note record
        register set append""",
    "delete": """delete remove erase drop discard trash purge destroy throw clear wipe prune cancel uninstall kill
        dump bin""",
    "change": """update edit change modify set rename move put replace adjust assign configure turn mark convert switch
        transition resize apply patch merge make rewrite correct fix raise lower increase decrease shrink enlarge shift
        tick reschedule postpone""",
    "send": """send post message reply tell share publish upload email mail forward write text submit notify answer say
        respond drop""",
    "start": """start run launch play open turn switch enable execute begin up resume restart invoke call trigger put
        kick""",
    "stop": "stop pause end close kill quit disable turn switch shut halt off cancel lock block abort terminate",
    "receive": "download pull fetch save export receive import clone grab",
    "travel": "book reserve buy order rent pay sign apply hire transfer",
}
"""Kind of action -> the verbs and question words that ask for it; a verb may ask for several kinds."""


def read_lines(name: str) -> list[str]:
    """Return the lines of a file of words that is shipped, without comments."""
    from localmcp.config import packaged_data

    text = (packaged_data() / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@cache
def _actions_by_stem() -> dict[str, frozenset[str]]:
    partners: dict[str, set[str]] = {}
    for kind, verbs in ACTIONS.items():
        for verb in verbs.split():
            partners.setdefault(stem(verb, "english"), set()).add(kind)
    return {verb: frozenset(kinds) for verb, kinds in partners.items()}


def actions_of(stemmed: str) -> frozenset[str]:
    """Return the kinds of action that a stem asks for; empty for a word that is no verb of the table."""
    return _actions_by_stem().get(stemmed, frozenset())
