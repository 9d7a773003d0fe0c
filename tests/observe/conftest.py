"""Regions for tests: one for a whole file, and one that a test may break."""

import contextlib
import pathlib
import tempfile

import pytest
from region import Region


@contextlib.contextmanager
def running():
    with tempfile.TemporaryDirectory(prefix="presence-observe-") as folder:
        region = Region(pathlib.Path(folder))
        try:
            region.begin()
            yield region
        finally:
            region.end()


@pytest.fixture(scope="module")
def region():
    with running() as region:
        yield region


@pytest.fixture
def fragile():
    with running() as region:
        yield region
