"""Reports: one offline HTML page for a run, or for several side by side."""
