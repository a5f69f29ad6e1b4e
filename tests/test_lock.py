"""Checks of the lock files: constraints.txt and requirements.lock pin every package, and workflows
pin actions by commit.
"""

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
OWN = {"glassformer", "pip", "setuptools"}  # the package itself, and what `python -m venv` brings
WORKFLOWS = [*ROOT.glob(".github/**/*.yml")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(name):
    """The requirements of a file, without comments and hashes."""
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(x.rstrip("\\ ")) for x in lines if x and not x.startswith(("#", " "))]


def pinned_here():
    """Package -> version that constraints.txt sets for this Python on this system."""
    here = [r for r in pins("constraints.txt") if r.marker is None or r.marker.evaluate()]
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in here}


def unpinned(versions, pinned):
    """Installed packages whose version is not the pinned one; torch's may end in +cpu."""
    return sorted(
        f"{name}=={version}, pinned: {pinned.get(name)}"
        for name, version in versions.items()
        if name not in OWN and version.partition("+")[0] != pinned.get(name)
    )


def test_every_installed_package_is_pinned_to_its_version():
    there = importlib.metadata.distributions()
    versions = {canonicalize_name(d.metadata["Name"]): d.version for d in there}
    assert len(versions) > 100 and not unpinned(versions, pinned_here())


@pytest.mark.parametrize("versions", [{"rich": "0.1"}, {"a-package-that-nobody-pinned": "1.0"}])
def test_another_version_and_a_new_package_are_found(versions):
    assert len(unpinned(versions, pinned_here())) == 1


def test_the_lock_has_the_same_versions_each_with_its_hashes():
    torch, *others = sorted(pins("constraints.txt"), key=lambda r: r.name != "torch")
    assert torch.name == "torch" and others
    assert [*map(str, sorted(others, key=str))] == [
        *map(str, sorted(pins("requirements.lock"), key=str))
    ]
    entries = re.split(r"^(?=\w)", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    assert not [e[:60] for e in entries[1:] if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", e)]
    assert all(str(r.specifier).startswith("==") for r in others)


def test_what_builds_the_package_is_locked_too():
    (backend,) = map(Requirement, PROJECT["build-system"]["requires"])
    assert str(backend.specifier) == f"=={pinned_here()[backend.name]}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_actions_are_pinned_by_commit_with_their_version_beside(path):
    uses = re.findall(r"^.*\buses:.*$", path.read_text(), re.MULTILINE)
    known = re.compile(r" uses: (\./\S+|[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$")
    assert not [line for line in uses if not known.search(line)]


def test_a_job_that_may_write_installs_nothing():
    for path in ROOT.glob(".github/workflows/*.yml"):
        flow = yaml.safe_load(path.read_text())
        assert flow["permissions"] == {"contents": "read"}, path.name
        assert "EXTRA_INDEX" not in path.read_text()
        for job in flow["jobs"].values():
            if "write" in str(job.get("permissions")):
                steps = str(job["steps"])
                assert "pip" not in steps and "./" not in steps
