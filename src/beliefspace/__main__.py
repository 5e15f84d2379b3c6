"""``python -m beliefspace``: the command line."""

from beliefspace.cli.main import main

raise SystemExit(main())
