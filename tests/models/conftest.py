"""The tests of the model itself read every text with it."""

from collections.abc import Iterator

import pytest
from remembered_vectors import PASSAGE_VECTOR, QUERY_VECTOR
from shared_models import load_models_anew

from localmcp.models.local_model import LocalModel


@pytest.fixture(scope="module", autouse=True)
def read_with_the_model() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalModel, "_query_vector", QUERY_VECTOR)
        patch.setattr(LocalModel, "_passage_vector", PASSAGE_VECTOR)
        load_models_anew(patch)
        yield
