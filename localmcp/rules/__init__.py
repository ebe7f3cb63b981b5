"""Rules that a person taught their assistant once, found again when a task needs them (S2)."""
