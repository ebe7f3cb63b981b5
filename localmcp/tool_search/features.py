"""What speaks for each tool under a query, and what speaks against all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localmcp.tool_search.background_requests import elsewhere
from localmcp.tool_search.catalog import ALIKE, ToolCatalogue, ToolVectors, action_bits
from localmcp.tool_search.query import Query, telling
from localmcp.tool_search.synonyms import actions_of, synonyms
from localmcp.tool_search.unsupported_commands import Commands, ComposedCommands
from localmcp.tool_search.verbs import looking

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LOOKED_AT = 64
"""Tools that are judged: those that words and meaning put first."""
OF_ITS_NAME = 0.65
"""A word that counts less than this stands neither in the name nor for a word of it, see `catalog.ALIKE`."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of the tools under one query."""

    places: NDArray[np.intp]
    """Places in the catalogue of the tools that are judged."""
    rows: NDArray[np.float32]
    """A row for each; the columns are `abstention.FEATURES`, or `WORD_FEATURES` without a model."""
    with_model: bool = False
    elsewhere: float = 0.0
    """How much nearer the query is to something that people ask of other programs, see `background_requests`."""
    gap: tuple[float, float] | None = None
    """How much nearer it is to what these tools do not do: than to what they do, and than to any tool, see
    `unsupported_commands`; None where this is not known."""

    @property
    def signs(self) -> dict[str, float]:
        """What concerns the query alone, under the names of `abstention`."""
        if not self.with_model:
            return {}
        known = {"elsewhere": self.elsewhere}
        return known if self.gap is None else {**known, "gap": self.gap[0], "gap_to_tools": self.gap[1]}


def evidence_of_words(query: Query, catalogue: ToolCatalogue) -> Evidence:
    """The columns that need no model, for every tool."""
    import numpy as np

    size = len(catalogue.tools)
    found = [catalogue.columns(each.stem) for each in query.words]
    shares = np.stack([share for share, _ in found], axis=1) if found else np.zeros((size, 0), np.float32)
    holders = np.count_nonzero(shares, axis=0)
    rarity = np.array(
        [catalogue.rarity(int(number)) * telling(each.said) for number, each in zip(holders, query.words, strict=True)],
        np.float32,
    )
    reached, known = shares @ rarity, float(rarity @ (holders > 0)) or 1.0
    asked = action_bits(query.actions)
    columns = (
        reached / known,
        1 - np.exp(-reached / 3),
        *_done(query, catalogue),
        (catalogue.actions != 0) & bool(asked) & ((catalogue.actions & asked) == 0),
        _thing_named(query, catalogue),
        asked_for := _thing_asked(query, catalogue),
        (asked_for < OF_ITS_NAME) & bool(query.thing and query.verbs and query.verbs.isdisjoint(looking())),
        _unexplained(query, catalogue, shares, [program for _, program in found], rarity),
    )
    rows = np.stack([column.astype(np.float32) for column in columns], axis=1)
    return Evidence(np.arange(size), rows)


def _done(query: Query, catalogue: ToolCatalogue) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Where the verb that is asked for is the tool's, is only spoken of, and is nowhere; nowhere any if none is asked
    for."""
    import numpy as np

    if not query.verbs:
        nothing = np.zeros(len(catalogue.tools), bool)
        return nothing, nothing, nothing
    named, told = catalogue.doers(query.verbs)
    return named, told, ~(named | told)


def _thing_asked(query: Query, catalogue: ToolCatalogue) -> NDArray[np.float32]:
    """What the thing that is asked for counts at each tool; 0.5 where none is."""
    import numpy as np

    if not query.thing:
        return np.full(len(catalogue.tools), 0.5, np.float32)
    return catalogue.columns(query.thing)[0]


def _thing_named(query: Query, catalogue: ToolCatalogue) -> NDArray[np.float32]:
    """Share of the things in the tool's name that the query speaks of; 0.5 for a name without any."""
    import numpy as np

    things, counts = catalogue.things
    said = {each.stem for each in query.words}
    alike = frozenset[str]().union(*(synonyms().get(word, frozenset()) for word in said)) - said
    reached = np.zeros(len(counts), np.float32)
    for group, worth in ((said, 1.0), (alike, ALIKE)):
        for word in group & things.keys():
            reached[things[word]] += worth
    return np.where(counts > 0, reached / np.maximum(counts, 1), 0.5).astype(np.float32)


def _unexplained(
    query: Query,
    catalogue: ToolCatalogue,
    shares: NDArray[np.float32],
    programs: Sequence[NDArray[np.bool_]],
    rarity: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Share of the query's words, by rarity, that neither the tool nor its program nor its kind of action explains."""
    import numpy as np

    missing = np.zeros(len(catalogue.tools), np.float32)
    for column, (each, program) in enumerate(zip(query.words, programs, strict=True)):
        if not each.is_name:
            does = (catalogue.actions & action_bits(actions_of(each.stem))) != 0
            missing += rarity[column] * ((shares[:, column] == 0) & ~program & ~does)
    whole = float(rarity.sum())
    return missing / whole if whole else np.ones_like(missing)


def evidence_of_meaning(
    row: NDArray[np.float32],
    vectors: ToolVectors,
    by_words: Evidence,
    commands: Commands | ComposedCommands | None = None,
) -> Evidence:
    """All columns, for the tools that words and meaning put first; `row` is the query's unit vector."""
    import numpy as np

    cosine, name = vectors.to_scale(vectors.first @ row), vectors.to_scale(vectors.named @ row)
    other = vectors.to_scale(np.maximum.reduceat(vectors.others @ row, vectors.begins))
    known, strength = by_words.rows[:, 0], by_words.rows[:, 1]
    nearest = np.maximum(cosine, other)
    order = np.argsort(-(nearest + 0.3 * known + 0.2 * strength), kind="stable")
    places = np.sort(order[:LOOKED_AT])
    rows = np.concatenate([np.stack([cosine, other, name], axis=1)[places], by_words.rows[places]], axis=1)
    further = elsewhere(vectors.to_scale(vectors.requests @ row), vectors.to_scale(vectors.requested))
    found = Evidence(places, rows, True, further)
    if commands is None:
        return found
    nearer, missing = commands.nearness(row)
    scaled = vectors.factor * missing + vectors.offset
    return replace(found, gap=(vectors.factor * nearer, scaled - float(nearest[places].max())))
