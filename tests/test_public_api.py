"""What is public: every package lists its names, each can be imported, and importing costs nothing unasked for."""

import importlib
import pkgutil
import subprocess
import sys
from inspect import isclass, isfunction
from types import ModuleType

import pytest

import fairlead


def _packages():
    yield "fairlead"
    for module in pkgutil.walk_packages(fairlead.__path__, "fairlead."):
        if module.ispkg and not any(part.startswith("_") for part in module.name.split(".")):
            yield module.name


PACKAGES = sorted(_packages())
LISTED = [name for name in PACKAGES if hasattr(importlib.import_module(name), "__all__")]

# Whose names outsiders use; each lists them.
PUBLIC = (
    "fairlead",
    "fairlead.engine",
    "fairlead.model",
    "fairlead.planning",
    "fairlead.policy",
    "fairlead.profile",
    "fairlead.report",
    "fairlead.testing",
    "fairlead.workload",
)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_package_lists_its_names(name):
    assert name in LISTED


@pytest.mark.parametrize("name", LISTED)
def test_listed_names_exist_are_sorted_and_listed_once(name):
    package = importlib.import_module(name)
    listed = list(package.__all__)
    assert [each for each in listed if not hasattr(package, each)] == []
    assert len(set(listed)) == len(listed)
    # Constants, then classes, then functions, each by the alphabet.
    assert listed == sorted(listed, key=lambda each: (not each.isupper(), not each[0].isupper(), each))


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_importable_is_listed(name):
    package = importlib.import_module(name)
    public = {
        each
        for each, value in vars(package).items()
        if not each.startswith("_") and not isinstance(value, ModuleType) and _is_ours(value)
    }
    assert public - set(package.__all__) == set()


def _is_ours(value):
    return getattr(value, "__module__", "").startswith("fairlead")


@pytest.mark.parametrize("name", PACKAGES)
def test_package_says_what_it_is(name):
    assert (importlib.import_module(name).__doc__ or "").strip()


@pytest.mark.parametrize("name", PUBLIC)
def test_listed_classes_and_functions_have_docstrings(name):
    package = importlib.import_module(name)
    values = {each: getattr(package, each) for each in package.__all__}
    silent = [each for each, v in values.items() if (isclass(v) or isfunction(v)) and not (v.__doc__ or "").strip()]
    assert silent == []


@pytest.mark.parametrize("library", ["ray", "kubernetes", "torch", "cv2", "pyopencl", "matplotlib", "hypothesis"])
def test_importing_loads_no_optional_library(library):
    code = f"import sys, fairlead, fairlead.testing; sys.exit({library!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
