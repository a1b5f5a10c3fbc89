"""Extension: export of a model as a folder in the layout of model hubs, which `icrl.load` reads."""
