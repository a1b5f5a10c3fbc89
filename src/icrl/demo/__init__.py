"""Page in the browser that shows a trained model as it learns: the exported network, the room's numbers, the page.

`page.py` and the files of the page need nothing but Python; the others may import all but studies and programs.
"""
