"""Evaluation: how well the search answers, on judged questions or on the person's own documents."""
