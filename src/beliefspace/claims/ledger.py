"""The published claims that this package knows, read from the files in ``ledger/``.

A file holds the claims of one paper on one topic. Protocols have names of their own, because
several values were published for the same experiment::

    arxiv = "2512.22471"

    [protocols.transformer]
    study = "train"
    tasks = [{ kind = "bijection", values = 20 }]
    settings.model.kind = "transformer"
    smoke = { seeds = 1, settings.schedule.budget = "1000 steps" }
    ...

    [[claims]]
    id = "bijection/transformer-v1"
    protocol = "transformer"
    ...
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from beliefspace.claims.schema import LEVELS, Claim, Trust
from beliefspace.core.config import from_dict
from beliefspace.core.errors import InvalidInput, nearest, unknown_name
from beliefspace.core.registry import name_of
from beliefspace.studies.arms import flat
from beliefspace.windtunnel.tasks.base import Task

__all__ = ["PublishedValue", "find", "ledger", "published", "read_ledger"]

_KEYS = ("arxiv", "protocols", "claims")


@dataclass(frozen=True)
class PublishedValue:
    """A published entropy error, to print beside a measured one.

    Attributes:
        label: what it is of, for a table.
        entropy_error_bits: mean |H_model - H_Bayes|.
        trust: where it was read.
        note: what to know before relying on it.
        task: the task it was measured on.
        model: registered name of the kind of model.
        arxiv: id of the paper.
        claim: id of the claim.
    """

    label: str
    entropy_error_bits: float
    trust: Trust
    note: str
    task: Task
    model: str
    arxiv: str
    claim: str


@dataclass(frozen=True)
class _File:
    claims: tuple[Claim, ...]


@cache
def ledger() -> tuple[Claim, ...]:
    """Return every claim of the package, files by name, claims as they stand there.

    Raises:
        InvalidInput: a file is wrong; one line says where.
    """
    claims: list[Claim] = []
    sources = [item for item in files(__package__).joinpath("ledger").iterdir()]
    for source in sorted(sources, key=lambda item: item.name):
        if source.name.endswith(".toml"):
            claims += read_ledger(source.read_text(encoding="utf-8"), source.name)
    _check_unique(claims, "the ledger")
    return tuple(claims)


def find(claim_id: str) -> Claim:
    """Return the claim of an id.

    Raises:
        UnknownName: there is none; the nearest ids are given.
    """
    by_id = {claim.id: claim for claim in ledger()}
    if claim_id not in by_id:
        raise unknown_name("claim", claim_id, by_id)
    return by_id[claim_id]


def published(task_kind: str) -> tuple[PublishedValue, ...]:
    """Return the entropy errors that others published for a kind of task, in the ledger's order.

    Args:
        task_kind: registered name of the task ("bijection"). Values for several settings of it are
            returned together; ``task`` tells them apart.
    """
    found = []
    for claim in ledger():
        task, value = claim.protocol.tasks[0], claim.published
        about_entropy = claim.quantity == "score.entropy_error_bits.mean"
        if not about_entropy or value.value is None or value.trust == "computed here":
            continue
        if name_of(task)[1] == task_kind and claim.protocol.model is not None:
            found.append(
                PublishedValue(
                    label=claim.label,
                    entropy_error_bits=value.value,
                    trust=value.trust,
                    note=value.note,
                    task=task,
                    model=claim.protocol.model,
                    arxiv=claim.arxiv,
                    claim=claim.id,
                )
            )
    return tuple(found)


def read_ledger(text: str, where: str) -> tuple[Claim, ...]:
    """Read the claims in one file's text.

    Args:
        text: TOML; see the module's text.
        where: the file's name, for messages.

    Raises:
        InvalidInput: not TOML, an unknown or missing key, a wrong type, a protocol that is not
            there or that no claim uses, an id given twice.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{where} is not valid TOML: {error}") from None
    for key in table:
        if key not in _KEYS:
            close = nearest(key, _KEYS)
            hint = f"; nearest: {', '.join(close)}" if close else ""
            raise InvalidInput(f"{where}: unknown key {key!r}{hint}; known: {', '.join(_KEYS)}")
    if lacking := [key for key in _KEYS if key not in table]:
        raise InvalidInput(f"{where} lacks {', '.join(lacking)}")
    protocols = _protocols(table["protocols"], where)
    entries = _entries(table["claims"], where)
    for number, entry in enumerate(entries):
        at = f"{where}: claims[{number}]"
        if "arxiv" in entry:
            raise InvalidInput(f"{at} has arxiv of its own; it stands once, at the top of the file")
        name = entry.get("protocol")
        if not isinstance(name, str):
            raise InvalidInput(f"{at} has protocol = {name!r}: expected the name of a protocol")
        if name not in protocols:
            raise InvalidInput(f"{at}: {unknown_name('protocol', name, protocols)}")
        entry |= {"protocol": protocols[name], "arxiv": table["arxiv"]}
    used = [entry["protocol"] for entry in entries]
    for name, protocol in protocols.items():
        if not any(protocol is other for other in used):
            raise InvalidInput(f"{where}: no claim uses the protocol {name!r}")
    claims = from_dict(_File, {"claims": entries}, where).claims
    _check_unique(claims, where)
    return claims


def _entries(claims: object, where: str) -> list[dict[str, Any]]:
    if not isinstance(claims, list) or not all(isinstance(claim, dict) for claim in claims):
        raise InvalidInput(f"{where}: claims: expected tables, each headed [[claims]]")
    return [dict(claim) for claim in claims]


def _protocols(given: object, where: str) -> dict[str, dict[str, Any]]:
    """Return the protocols by name, with every table of free settings as a list of them."""
    if not isinstance(given, dict):
        raise InvalidInput(f"{where}: protocols: expected tables, each headed [protocols.NAME]")
    protocols = {}
    for name, protocol in given.items():
        at = f"{where}: protocols.{name}"
        if not isinstance(protocol, dict):
            raise InvalidInput(f"{at} = {protocol!r}: expected a table")
        listed = _with_settings_listed(protocol, at)
        for level in LEVELS:
            if isinstance(listed.get(level), dict):
                listed[level] = _with_settings_listed(listed[level], f"{at}.{level}")
        protocols[name] = listed
    return protocols


def _with_settings_listed(table: Mapping[str, Any], at: str) -> dict[str, Any]:
    settings = table.get("settings", {})
    if not isinstance(settings, dict):
        raise InvalidInput(f"{at}.settings = {settings!r}: expected a table of recipe fields")
    listed = [{"path": path, "value": value} for path, value in flat(settings).items()]
    return {**table, "settings": listed}


def _check_unique(claims: list[Claim] | tuple[Claim, ...], where: str) -> None:
    twice = [name for name, count in Counter(claim.id for claim in claims).items() if count > 1]
    if twice:
        raise InvalidInput(f"{where} has two claims with the id {twice[0]!r}")
