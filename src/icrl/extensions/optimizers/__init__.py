"""Extension: the optimizers LAMB and MTAdam."""
