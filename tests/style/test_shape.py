"""Names say what is inside, folders introduce themselves, and a function fits a screen."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.style.sources import PRODUCT, ROOT, Offence, Source, assert_none, functions, place, product_sources, source

EMPTY_NAMES = {"util", "utils", "common", "helper", "helpers", "misc"}
FUNCTION_LINES_MAX = 60


def empty_names(source: Source) -> Iterator[Offence]:
    """Yield the file if it, or a folder around it, has a name that fits anything."""
    for part in PurePosixPath(source.path).with_suffix("").parts:
        if part.strip("_") in EMPTY_NAMES:
            yield Offence(
                f"{source.path}:1", f"{part} says nothing", "name it after what it does, beside its first caller"
            )


def long_functions(source: Source) -> Iterator[Offence]:
    """Yield each function of more than `FUNCTION_LINES_MAX` lines, from `def` to its last line."""
    for function, name in functions(source.tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            yield Offence(place(source, function), f"{name} has {lines} lines", "let it fit a screen: name its parts")


def test_no_module_has_a_name_that_fits_anything() -> None:
    assert_none(empty_names, product_sources(*PRODUCT, "tests"))


def test_every_function_fits_a_screen() -> None:
    assert_none(long_functions, product_sources())


def test_every_folder_introduces_itself_in_its_init() -> None:
    folders = {PurePosixPath(each.path).parent for each in product_sources()}
    introduced = {
        PurePosixPath(each.path).parent
        for each in product_sources()
        if each.path.endswith("/__init__.py") and (each.tree.body and each.text.lstrip().startswith(('"""', 'r"""')))
    }
    silent = sorted(str(folder) for folder in folders - introduced)
    assert not silent, (
        f"no docstring in the __init__.py of {silent}: say what the folder is and in which order to read it"
    )


def test_every_package_ships_its_types() -> None:
    assert [package for package in ("fairlead", "bench") if not (ROOT / package / "py.typed").is_file()] == []


def test_planted_offences_against_names_and_sizes_are_found() -> None:
    assert len(list(empty_names(source("zones/utils.py", "")))) == 1
    assert len(list(empty_names(source("zones/_helpers/item.py", "")))) == 1
    assert list(empty_names(source("zones/commonplace.py", ""))) == []
    assert len(list(long_functions(source("zones/planted.py", "class C:\n  def f(self):\n" + "    x = 1\n" * 60)))) == 1
    assert list(long_functions(source("zones/planted.py", "def f():\n" + "  x = 1\n" * 59))) == []
