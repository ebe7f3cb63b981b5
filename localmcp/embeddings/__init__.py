"""Embedding models: the one that ships with localmcp, and those a person may choose instead.

Modules of single models are imported when a model is opened.
"""

from localmcp.embeddings.embedder import DEFAULT_NAME as DEFAULT_NAME
from localmcp.embeddings.embedder import MULTILINGUAL_NAME as MULTILINGUAL_NAME
from localmcp.embeddings.embedder import Embedder as Embedder
from localmcp.embeddings.embedder import ModelIdentity as ModelIdentity
from localmcp.embeddings.embedder import describe_arithmetic as describe_arithmetic
from localmcp.embeddings.embedder import is_unit_vector as is_unit_vector
from localmcp.embeddings.hashing import HashEmbedder as HashEmbedder
from localmcp.embeddings.lazy import LazyEmbedder as LazyEmbedder
from localmcp.embeddings.spec import configured_embedder as configured_embedder
from localmcp.embeddings.spec import open_embedder as open_embedder
from localmcp.embeddings.spec import open_local_model as open_local_model
from localmcp.embeddings.spec import parse_spec as parse_spec
