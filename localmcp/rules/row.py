"""A rule as a line of a JSON Lines file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class RuleRow(BaseModel):
    """What a line may say of a rule; keys besides these are ignored."""

    model_config = ConfigDict(strict=True)

    rule_text: str = Field(min_length=1)
    category: str | None = None
    context: str | None = None
    project: str | None = None
    globs: list[str] | None = None
    always_apply: bool = False
    weight: float = Field(1.0, ge=0, le=2)
