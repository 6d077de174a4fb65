"""Settings of the monitor that diagnoses a run while it trains."""

from pydantic import Field

from springtide.scheduling.config import StrictModel


class DiagnosisConfig(StrictModel):
    every: int = Field(
        10, ge=0, description="Train steps between two diagnoses of the run while it trains (diagnosis.jsonl); 0: none."
    )
