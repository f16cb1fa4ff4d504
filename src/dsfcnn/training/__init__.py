"""Training and evaluation: one configuration, one loop, one folder for a run that survives anything."""
