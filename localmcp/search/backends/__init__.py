"""Where the vectors of a collection are searched: in the file, or on a Milvus server."""
