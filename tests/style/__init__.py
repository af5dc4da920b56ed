"""The rules of the house that no linter knows.

Read in this order:
    sources           the product's files, parsed, and what a name in them stands for
    test_determinism  time and randomness arrive as arguments
    test_imports      who may import what, where import-linter cannot say it
    test_errors       no broad except
    test_shape        names, docstrings and sizes
    test_packaging    dependencies are pinned; importing the face is cheap
Each rule is a function from a source to its offences, so each is also tested on a planted offence.
"""
