"""The command line: one module a command or small family; :mod:`.main` finds it."""
