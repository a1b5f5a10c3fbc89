"""Exported models: folders with all that a model needs to act, in the layout of model hubs, which `icrl.load` reads."""
