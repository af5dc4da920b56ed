"""`shop:app` becomes an application, and an error says how far the search came."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.layers import BadConfig
from fairlead.loading import NotFound, load_app, load_attribute

SHOP = "import fairlead\napp = fairlead.App('memory:')\nclass inner:\n    app = app\nnumber = 7\n"


@pytest.fixture(autouse=True)
def shop(empty_directory: Path) -> None:
    """The module `fl_shop` stands in the current directory."""
    (empty_directory / "fl_shop.py").write_text(SHOP, encoding="utf-8")
    (empty_directory / "fl_broken.py").write_text("import fl_not_installed\n", encoding="utf-8")


def why(reference: str) -> dict[str, object]:
    with pytest.raises(NotFound) as caught:
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
    assert (fields["reason"], fields["apps"]) == ("it is a int, not a fairlead.App", ["app"])


@pytest.mark.parametrize("reference", ["fl_shop", "fl_shop:", ":app", ""])
def test_a_reference_without_two_sides_is_refused(reference: str) -> None:
    assert "colon" in str(why(reference)["reason"])


def test_what_a_module_fails_to_import_is_not_mistaken_for_the_module() -> None:
    with pytest.raises(ModuleNotFoundError, match="fl_not_installed"):
        load_attribute("fl_broken:app")


def test_loading_an_application_reads_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "fairlead.toml").write_text("nonsense = 1", encoding="utf-8")
    app = load_app("fl_shop:app")
    with pytest.raises(BadConfig):
        _ = app.config
