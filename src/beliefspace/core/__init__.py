"""Shared foundations: information, distributions, streams, statistics, traces, runs on disk."""
