"""Protocols: from several runs to tables and verdicts."""
