"""Connecting a client: its configuration file is found, changed and tried out."""
