"""The knowledge base: documents in, passages out."""
