"""Extension: the optimizers SGD, RAdam, LAMB and MTAdam."""
