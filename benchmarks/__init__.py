"""What the package is measured by: ``python -m benchmarks``; the numbers are in README.md."""
