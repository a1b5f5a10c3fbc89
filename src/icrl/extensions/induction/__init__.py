"""Extension: the induction layer, with which a model looks up what followed earlier visits to an observation."""
