"""Extension: planning in context: a model that also predicts rewards and observations, and acts on imagined steps."""
