"""The arithmetic of the models, in torch; each specification in models/ names its own."""
