"""Settings of every test run."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: how long an example takes says more about the machine than about the code. The same
# examples every time where a failure would stop a landing; new ones everywhere else.
settings.register_profile("beliefspace", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("beliefspace")
