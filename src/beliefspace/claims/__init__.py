"""The ledger of published claims, and verdicts on them computed from runs."""
