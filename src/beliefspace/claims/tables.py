"""Claims and verdicts as plain rows."""

from __future__ import annotations

from collections.abc import Sequence

from beliefspace.claims.schema import Claim
from beliefspace.claims.verdict import Verdict
from beliefspace.core.errors import InvalidInput

COLUMNS = ("claim", "verdict", "published", "measured", "trust")

_SIGNS = {"at most": "≤", "about": "≈", "at least": "≥"}


def table(claims: Sequence[Claim], verdicts: Sequence[Verdict]) -> list[dict[str, str]]:
    """Return one row a claim, by the names in :data:`COLUMNS`; together they fit 100 columns.

    Args:
        claims: any claims.
        verdicts: theirs, in the same order.

    Raises:
        InvalidInput: a verdict is another claim's.
    """
    asked, given = [claim.id for claim in claims], [verdict.claim for verdict in verdicts]
    if asked != given:
        raise InvalidInput(f"verdicts on {', '.join(given)} given; expected {', '.join(asked)}")
    return [_row(claim, verdict) for claim, verdict in zip(claims, verdicts, strict=True)]


def _row(claim: Claim, verdict: Verdict) -> dict[str, str]:
    value = claim.published.value
    number = "" if value is None else f"{_SIGNS[claim.relation]} {value:.3g} {claim.published.unit}"
    cells = (claim.id, verdict.status, number.rstrip(), _measured(verdict), claim.published.trust)
    return dict(zip(COLUMNS, cells, strict=True))


def _measured(verdict: Verdict) -> str:
    if (measured := verdict.measured) is None:
        return ""
    text = f"{measured.mean:.3g}"
    if verdict.one_seed:
        # Its interval is over sequences; beside those over seeds it would look more certain.
        return f"{text}, 1 seed"
    if (interval := measured.interval) is not None:
        low, high = f"{interval.low:.3g}", f"{interval.high:.3g}"
        # An interval narrower than what is printed says nothing.
        text += "" if low == high else f" [{low}, {high}]"
    return text
