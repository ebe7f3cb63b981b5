"""The doctor: what is wrong with the file, the model, the configuration or this machine, and how to fix it."""
