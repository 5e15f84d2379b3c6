"""The panels of a report, one module each; a function registered in "panels" is one more."""
