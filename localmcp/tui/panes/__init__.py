"""One pane for each feature."""
