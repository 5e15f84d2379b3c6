"""Bayesian wind tunnels: small sequence models against exact posteriors (2512.22471)."""
