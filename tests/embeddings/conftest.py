"""The tests of the model itself read every text with it."""

from collections.abc import Iterator

import pytest
from remembered_vectors import EMBED_LONG, RUN_QUERY

from localmcp.embeddings.encoder_embedder import EncoderEmbedder


@pytest.fixture(scope="module", autouse=True)
def read_with_the_model() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EncoderEmbedder, "_run_query", RUN_QUERY)
        patch.setattr(EncoderEmbedder, "_embed_long", EMBED_LONG)
        yield
