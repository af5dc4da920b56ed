"""What is installed owns one name, `fairlead`: a user's files may have any other."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.fleets import eventually
from tests.style.sources import ROOT

SHOP = """
import os, pathlib
import actors, simulation, zones
import fairlead

assert pathlib.Path(fairlead.__file__).is_relative_to(os.environ["PYTHONPATH"])
assert actors.WHOSE == simulation.WHOSE == zones.WHOSE == "the user's"
app = fairlead.App("embedded:./data")

@app.handler("receipt", transactional=True)
def send_receipt(job, tr):
    tr.set(("sent", job.payload["order"]), actors.WHOSE.encode())
"""
OF_THE_USER = ("actors.py", "simulation.py", "zones/__init__.py")
ENQUEUE = "import shop; shop.app.tenant('shop', 'alice').enqueue('receipt', {'order': 7})"
SENT = "import shop; print(shop.app.tenant('shop', 'alice').transact(lambda tr: tr.get(('sent', 7))))"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sdist of this checkout, and the wheel that is built from that sdist."""
    folder = tmp_path_factory.mktemp("built")
    _build(ROOT, "sdist", folder)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as sdist:
        sdist.extractall(folder / "sdist", filter="data")
    _build(next((folder / "sdist").iterdir()), "wheel", folder)
    return folder


@pytest.fixture
def run(built: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Yield what runs this Python in a user's folder, where the wheel is installed and the checkout is out of reach."""
    site, mine = tmp_path / "site", tmp_path / "mine"
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    for name in OF_THE_USER:
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text('WHOSE = "the user\'s"\n')
    (mine / "shop.py").write_text(SHOP)
    processes: list[subprocess.Popen[str]] = []
    variables = {**os.environ, "PYTHONPATH": str(site)}

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(
            command, cwd=mine, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_the_wheel_holds_one_name(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = {name.partition("/")[0] for name in wheel.namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"fairlead"}


def test_the_sdist_holds_neither_benchmarks_nor_tests(built: Path) -> None:
    (unpacked,) = (built / "sdist").iterdir()
    assert {path.name for path in unpacked.iterdir() if path.is_dir()} == {"fairlead"}


@pytest.mark.parametrize("runtime", ["threads", pytest.param("ray", marks=pytest.mark.long)])
def test_an_application_runs_beside_a_users_files_of_any_name(
    run: Callable[..., subprocess.Popen[str]], runtime: str
) -> None:
    answer, error = (done := run("-c", ENQUEUE)).communicate(timeout=60)
    assert done.returncode == 0, answer + error
    fleet = run("-m", "fairlead", "run", "shop:app", "--runtime", runtime)
    eventually(lambda: "the user's" in run("-c", SENT).communicate(timeout=60)[0], within_s=60.0)
    fleet.terminate()
    answer, error = fleet.communicate(timeout=60)
    assert fleet.returncode == 0, answer + error


def _build(source: Path, what: str, into: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", what, "--directory", str(into)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
