"""Extension: probes of a model in its evaluation, other decodings and ablations of its context."""
