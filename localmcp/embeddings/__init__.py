"""Embedding models: the one that ships with localmcp, and those a person may choose instead."""

from localmcp.embeddings.embedder import Embedder as Embedder
from localmcp.embeddings.embedder import ModelIdentity as ModelIdentity
from localmcp.embeddings.endpoint import EndpointEmbedder as EndpointEmbedder
from localmcp.embeddings.fast import has_fast_form as has_fast_form
from localmcp.embeddings.hashing import HashEmbedder as HashEmbedder
from localmcp.embeddings.lazy import LazyEmbedder as LazyEmbedder
from localmcp.embeddings.local import open_local_model as open_local_model
from localmcp.embeddings.onnx import DefaultEmbedder as DefaultEmbedder
from localmcp.embeddings.onnx import FastEmbedModel as FastEmbedModel
from localmcp.embeddings.onnx import FolderEmbedder as FolderEmbedder
from localmcp.embeddings.onnx import list_fastembed_models as list_fastembed_models
from localmcp.embeddings.spec import ModelSpec as ModelSpec
from localmcp.embeddings.spec import open_embedder as open_embedder
from localmcp.embeddings.spec import parse_spec as parse_spec
