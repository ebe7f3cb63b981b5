"""The retriever: several questions at once, over collections here or on Milvus."""
