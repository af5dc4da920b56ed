"""`shop:app` becomes an application, or an error says what was found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairlead.config_layers import BadConfig
from fairlead.loading import NAMES_SHOWN, NotImportable, ReferenceNotFound, load_app, load_attribute

SHOP = "import fairlead\napp = fairlead.App('memory:')\nclass inner:\n    app = app\nnumber = 7\n"


@pytest.fixture(autouse=True)
def shop(empty_directory: Path) -> None:
    """The module `fl_shop` stands in the current directory."""
    (empty_directory / "fl_shop.py").write_text(SHOP, encoding="utf-8")
    (empty_directory / "fl_broken.py").write_text("import fl_not_installed\n", encoding="utf-8")


def why(reference: str) -> dict[str, object]:
    with pytest.raises(ReferenceNotFound) as caught:
        load_app(reference)
    return caught.value.fields


def test_an_application_is_found_in_the_current_directory() -> None:
    assert load_app("fl_shop:app") is load_app("fl_shop:inner.app")


def test_a_missing_module_is_named_with_the_directory_that_was_searched(tmp_path: Path) -> None:
    fields = why("fl_shoop:app")
    assert (fields["reason"], fields["searched"]) == ("no module fl_shoop", str(tmp_path))
    assert why("fl_shop.sub:app")["reason"] == "no module fl_shop.sub"


def test_a_missing_attribute_is_named_with_the_nearest_one() -> None:
    fields = why("fl_shop:ap")
    assert (fields["reason"], fields["nearest"]) == ("fl_shop has no attribute ap", "app")


def test_something_that_is_no_application_is_named_with_the_applications_beside_it() -> None:
    fields = why("fl_shop:number")
    assert (fields["reason"], fields["apps"]) == ("it is of type int, not a fairlead.App", ["app"])


@pytest.mark.parametrize("reference", ["fl_shop", "fl_shop:", ":app", ""])
def test_a_reference_without_two_sides_is_refused(reference: str) -> None:
    assert "colon" in str(why(reference)["reason"])


def test_what_a_module_fails_to_import_is_not_mistaken_for_the_module() -> None:
    with pytest.raises(NotImportable, match="fl_not_installed"):
        load_attribute("fl_broken:app")


def test_loading_an_application_reads_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "fairlead.toml").write_text("nonsense = 1", encoding="utf-8")
    app = load_app("fl_shop:app")
    with pytest.raises(BadConfig):
        _ = app.config


# --- Paths, and wrong attributes ---


@pytest.mark.parametrize(
    "reference, nearest",
    [("./fl_shop:app", "fl_shop:app"), ("fl_shop.py:app", "fl_shop:app"), ("etc/fl_shop.py:app", "fl_shop:app"),
     ("../fl_shop:app", "fl_shop:app"), ("fl_shop.py", "fl_shop:ATTRIBUTE"), ("./:app", None)],
)  # fmt: skip
def test_a_path_is_refused_with_the_module_to_name_and_its_directory(
    reference: str, nearest: str | None, tmp_path: Path
) -> None:
    fields = why(reference)
    assert "a path" in str(fields["reason"])
    assert fields["nearest"] == nearest
    path = Path(os.path.normpath(tmp_path / reference.partition(":")[0]))
    assert nearest is None or f"in {path.parent}" in str(fields["remedy"])


def test_a_missing_attribute_is_named_with_those_that_the_module_has() -> None:
    fields = why("fl_shop:nope")
    assert fields["has"] == ["app", "inner", "number"]
    assert why("fl_shop:inner.nope")["has"] == ["app"]
    assert why("fl_shop:number.nope")["has"] is None
    for reference in ("fl_shop:nope", "fl_shop:number", "fl_shop", "fl_shop:"):
        assert "director" not in str(why(reference)["remedy"])
    assert "remedy" not in why("fl_shoop:app")  # here the class's own holds: go to the directory of the module


def test_a_reference_without_a_colon_is_refused_with_how_to_write_it() -> None:
    assert "MODULE:ATTRIBUTE" in str(why("fl_shop")["remedy"])


def test_of_a_module_full_of_names_only_the_first_are_listed(tmp_path: Path) -> None:
    (tmp_path / "fl_full.py").write_text("".join(f"n{each} = 0\n" for each in range(100)), encoding="utf-8")
    assert why("fl_full:app")["has"] == [f"n{each}" for each in range(NAMES_SHOWN)]
