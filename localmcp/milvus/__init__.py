"""The second backend of the index: collections on a Milvus server."""
