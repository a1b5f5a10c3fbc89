"""Extension: web page that shows a trained model as it learns: exported network, numbers of the room, the page itself.

`page.py` imports only Python's standard library; the others import from evaluation and all folders below it.
"""

NEEDS = ("exact",)
