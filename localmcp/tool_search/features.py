"""Features of each tool for a query, as numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

from localmcp.arrays import NDArray, np
from localmcp.tool_search.catalog import ToolCatalog
from localmcp.tool_search.meaning import ToolVectors, out_of_scope_margin
from localmcp.tool_search.query import Query, telling

COSINES = ("cosine", "other_cosine", "name_cosine")
"""Of the query with the tool's server, name and first sentence; with the nearer of its description and examples; with
its name alone. On the scale of the default model."""
COMPARED = (*COSINES, "strength")
"""strength: 1 - exp(-weight / 3) of the weight of the query's words that the tool has, by field and rarity."""
FEATURES = (*COMPARED, "saying", "capability", "hubness", "verb_not_in_name")
"""saying: cosine of the query with what people say for such tools; capability: of the tool with what tools for such
queries are called; for a model without an adapter the cosine of query and tool, and half of it; hubness: how near the
tool is to requests in general, which says nothing about this one; verb_not_in_name: 1 if the command has a verb that is
neither in the tool's name nor first in its description."""
CLAUSE_SHARE = 0.5
"""How much the mean of a request's clauses counts beside the whole."""
MOST_WORDS = 15
MAX_COMPARED = 1000
"""Tools that are compared by description and name too: with more, those that come first by name, sentence and words."""


@dataclass(frozen=True, slots=True)
class Features:
    """A query against every tool of a catalog."""

    rows: NDArray[np.float32]
    """(tools, FEATURES); the cosines are 0 without a model."""
    opposed: NDArray[np.bool_]
    """(tools,): whether a tool is named by the opposite of what the query asks for."""
    words: int = 0
    """Words of the query that can point to a tool: of a long request fewer fit any one tool."""
    out_of_scope: float = 0.0
    """How much nearer the query is to something that people ask of other programs, see `meaning`."""
    with_model: bool = False


def word_features(query: Query, catalog: ToolCatalog) -> Features:
    """Compare words only: the columns of the cosines stay 0."""
    size = len(catalog.tools)
    columns = [catalog.column(word.stem) for word in query.words]
    shares = np.stack(columns, axis=1) if columns else np.zeros((size, 0), np.float32)
    holders = np.count_nonzero(shares, axis=0)
    rarity = np.array(
        [catalog.rarity(int(n)) * telling(word.surface) for n, word in zip(holders, query.words, strict=True)],
        np.float32,
    )
    unnamed = ~catalog.named_by(query.verbs) if query.verbs and query.is_command else np.zeros(size, bool)
    none = np.zeros(size, np.float32)
    strength = 1 - np.exp(-(shares @ rarity) / 3)
    rows = np.stack([none, none, none, strength, none, none, none, unnamed], axis=1)
    opposed = catalog.opposed(query.opposites, query.verbs) & query.is_command
    return Features(rows.astype(np.float32), opposed, min(len(query.words), MOST_WORDS))


def request_vector(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the unit vector of a request.

    Args:
        rows: unit vectors of the whole request, then of its clauses if there are several: one of them says what is
            wanted, the others tell of the circumstances.
    """
    if len(rows) == 1:
        return rows[0]
    mixed = rows[0] + CLAUSE_SHARE * rows[1:].mean(axis=0)
    return mixed / np.linalg.norm(mixed)


def _nearest_text(vectors: ToolVectors, places: NDArray[np.intp], row: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the cosine of the nearest description or example, for the tools at these places."""
    ends = np.append(vectors.begins[1:], len(vectors.others))
    texts = [list(range(int(vectors.begins[place]), int(ends[place]))) for place in places.tolist()]
    begins = np.cumsum([0, *(len(text) for text in texts[:-1])])
    return np.maximum.reduceat(vectors.others[list(chain.from_iterable(texts))] @ row, begins)


def all_features(query: NDArray[np.float32], vectors: ToolVectors, by_words: Features) -> Features:
    """Add what the unit vector of the query says, compared with tools as `meaning` moves it."""
    rows, adapter = by_words.rows.copy(), vectors.adapter
    freedom = adapter.freedom(query) if adapter else 1.0
    row = adapter.adapt(query, freedom) if adapter else query
    saying, capability, hubness = range(len(COMPARED), len(COMPARED) + 3)
    rows[:, 0] = vectors.to_scale(vectors.first @ row)
    rows[:, saying] = freedom * (vectors.sayings @ (query @ adapter.axes) if adapter else rows[:, 0])
    rows[:, capability] = freedom * (vectors.on_axes @ adapter.capability_for(query)) if adapter else rows[:, 0] / 2
    rows[:, hubness] = (1 + freedom) / 2 * vectors.hubness
    if len(rows) <= MAX_COMPARED:
        rows[:, 1] = vectors.to_scale(np.maximum.reduceat(vectors.others @ row, vectors.begins))
        rows[:, 2] = vectors.to_scale(vectors.named @ row)
    else:
        first = rows[:, 0] + 0.5 * (rows[:, saying] + rows[:, capability] - rows[:, hubness])
        first += 0.5 * rows[:, FEATURES.index("strength")]
        best = np.argpartition(-first, MAX_COMPARED)[:MAX_COMPARED]
        rows[best, 1] = vectors.to_scale(_nearest_text(vectors, best, row))
        rows[best, 2] = vectors.to_scale(vectors.named[best] @ row)
    margin = out_of_scope_margin(vectors.to_scale(vectors.requests @ query), vectors.to_scale(vectors.requested))
    return replace(by_words, rows=rows, with_model=True, out_of_scope=margin)
