"""Every file of values for tests that want one, and the stage on which what is rendered runs."""

import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "foreign"))

from chart import HELMS, VALUES, rendered
from image import lay_out
from stage import Stage


def pytest_generate_tests(metafunc):
    if "values" in metafunc.fixturenames:
        metafunc.parametrize("values", VALUES, ids=[path.stem for path in VALUES])
    if "version" in metafunc.fixturenames:
        metafunc.parametrize("version", HELMS)


@pytest.fixture
def objects(values):
    return rendered(values)


@pytest.fixture(scope="session")
def root():
    """The root of the image, readable for everybody."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="presence-image-"))
    folder.chmod(0o755)
    yield lay_out(folder / "root")
    shutil.rmtree(folder)


@pytest.fixture
def stage():
    running = Stage()
    yield running
    leaks = running.leaks()
    running.end()
    assert leaks == []
