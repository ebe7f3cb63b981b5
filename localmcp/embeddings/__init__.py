"""Embedding models: the one that ships with localmcp, and those a person may choose instead."""

from localmcp.embeddings.default_model import DefaultEmbedder as DefaultEmbedder
from localmcp.embeddings.embedder import Embedder as Embedder
from localmcp.embeddings.embedder import ModelIdentity as ModelIdentity
from localmcp.embeddings.embedder import is_unit_vector as is_unit_vector
from localmcp.embeddings.encoder_embedder import EncoderEmbedder as EncoderEmbedder
from localmcp.embeddings.encoder_embedder import Trial as Trial
from localmcp.embeddings.encoder_embedder import describe_arithmetic as describe_arithmetic
from localmcp.embeddings.endpoint import EndpointEmbedder as EndpointEmbedder
from localmcp.embeddings.fastembed_models import FastEmbedModel as FastEmbedModel
from localmcp.embeddings.fastembed_models import FolderEmbedder as FolderEmbedder
from localmcp.embeddings.fastembed_models import list_fastembed_models as list_fastembed_models
from localmcp.embeddings.hashing import HashEmbedder as HashEmbedder
from localmcp.embeddings.lazy import LazyEmbedder as LazyEmbedder
from localmcp.embeddings.local import open_local_model as open_local_model
from localmcp.embeddings.spec import ModelSpec as ModelSpec
from localmcp.embeddings.spec import configured_embedder as configured_embedder
from localmcp.embeddings.spec import open_embedder as open_embedder
from localmcp.embeddings.spec import parse_spec as parse_spec
from localmcp.embeddings.tokens import TokenCounter as TokenCounter
