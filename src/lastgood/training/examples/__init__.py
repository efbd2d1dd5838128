"""Training scripts that ship with lastgood; run as scripts, not imported."""
