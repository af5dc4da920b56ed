"""Style rules of this repository that no linter checks.

Read in this order:
    sources           the product's files, parsed, and what a name in them stands for
    test_determinism  time and randomness arrive as arguments
    test_imports      which package may import which, where import-linter cannot say it
    test_errors       no broad except
    test_shape        names, docstrings and sizes
    test_packaging    dependencies are pinned; importing `fairlead` is cheap
    test_retired_names  identifiers that were replaced do not come back
    test_retired_terms  nor do words of prose
Each rule is a function from a source to its offences, so each is also tested on a planted offence.
"""
