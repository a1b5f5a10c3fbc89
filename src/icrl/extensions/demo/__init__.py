"""Page in the browser that shows a trained model as it learns: exported network, numbers of the room, the page itself.

`page.py` imports nothing but Python's own library; the others import from evaluation and all below it.
"""
