"""Settings of every test run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from beliefspace.core import registry

# No deadline: how long an example takes says more about the machine than about the code. The same
# examples every time where a failure would stop a landing; new ones everywhere else.
settings.register_profile("beliefspace", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("beliefspace")


@pytest.fixture(scope="session", autouse=True)
def _all_that_is_built_in() -> None:
    for group in registry.GROUPS:
        registry.names(group)


@pytest.fixture(autouse=True)
def _registry_as_before(_all_that_is_built_in: None) -> Iterator[None]:
    """Forget what a test's files register, so that no other test meets it."""
    kept = {table: dict(table_of) for table, table_of in _tables().items()}
    yield
    for table, table_of in _tables().items():
        table_of.clear()
        table_of.update(kept[table])
    for name in [name for name in sys.modules if name.startswith("beliefspace_file_")]:
        del sys.modules[name]


def _tables() -> dict[str, dict]:
    return {"entries": registry._entries, "values": registry._by_value}
