"""What is installed is what was pinned, and importing the face starts nothing."""

import subprocess
import sys
import tomllib
from importlib.metadata import distributions

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.style.sources import ROOT


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    pins = _pins()
    loose = [
        str(wanted)
        for wanted in (Requirement(text) for group in groups for text in group)
        if pins.get(canonicalize_name(wanted.name), "") not in wanted.specifier
    ]
    assert not loose, f"constraints.txt pins no version that satisfies {loose}: run make lock"


def test_every_pin_is_one_exact_version_from_any_index() -> None:
    assert "://" not in (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert all(_pins().values())


def test_what_is_pinned_takes_the_oldest_python_that_is_promised() -> None:
    """With a pin that wants a later 3.11, nothing could be installed on Debian 12, whose Python is 3.11.2."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=") + ".0"
    pins = _pins()
    too_new = [
        f"{each.metadata['Name']} {each.version} wants Python {each.metadata['Requires-Python']}"
        for each in distributions()
        if pins.get(canonicalize_name(each.metadata["Name"])) == each.version
        and "Requires-Python" in each.metadata
        and oldest not in SpecifierSet(each.metadata["Requires-Python"])
    ]
    assert not too_new, f"pin older ones in constraints.txt: {too_new}"


def test_importing_the_face_loads_neither_ray_nor_a_client_of_a_database() -> None:
    """A command that needs none of them starts at once, and none has to be installed."""
    program = "import sys, fairlead; print([name for name in ('ray', 'fdb', 'psycopg') if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_the_command_line_loads_no_web_server_before_its_command_is_typed() -> None:
    """They take a quarter of a second, which every other command would pay."""
    program = (
        "import sys, fairlead.cli; print([name for name in ('uvicorn', 'starlette', 'jinja2') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in pairs}
