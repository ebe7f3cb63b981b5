"""Files in, spans of text out."""
