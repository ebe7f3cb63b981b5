"""Embedding models: the one that ships with localmcp, and those that are imported when a person chooses them."""

from localmcp.models.choice import configured_embedder as configured_embedder
from localmcp.models.choice import open_embedder as open_embedder
from localmcp.models.choice import open_local_model as open_local_model
from localmcp.models.embedder import Embedder as Embedder
from localmcp.models.embedder import HashEmbedder as HashEmbedder
from localmcp.models.embedder import LazyEmbedder as LazyEmbedder
