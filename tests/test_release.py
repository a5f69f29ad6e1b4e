"""Checks of a release: version, changelog, policy and settings agree with each other, and the wheel
contains all files that the package needs.
"""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import glassformer as gf
from glassformer.circuits import edges, obfuscation
from glassformer.core.checkpoint_format import FORMAT_VERSION as CHECKPOINT
from glassformer.verification import resume_log, verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_one_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    log = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert gf.__version__ == PROJECT["version"] == cited["version"] == log[0]


def test_all_is_all():
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    named = re.fullmatch(r"glassformer\[(.*)\]", everything)[1].split(",")
    assert {*named} == {*extras} - {"all", "docs", "test"}
    assert "glassformer[all,docs]" in extras["test"]


def test_the_changelog_has_sections():
    heads = re.findall(r"^#+ .*$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    kinds = {"### Added", "### Changed", "### Deprecated", "### Fixed", "### Removed"}
    assert {h for h in heads if h.startswith("###")} <= kinds


def test_the_policy_knows_the_formats():
    text = (ROOT / "docs/policy.md").read_text()
    results = [f"`format` {CHECKPOINT}", f"`{verdict.FORMAT}`", f"`{resume_log.FORMAT}`"]
    results += [f"`{m.FORMAT}`, `version` {m.VERSION}" for m in (edges, obfuscation)]
    assert not [s for s in results if f"| {s}" not in text]


@pytest.mark.parametrize(
    "path", [*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml"], ids=lambda p: p.name
)
def test_settings_can_be_read_and_name_no_machine(path):
    text = path.read_text()
    assert yaml.safe_load(text)
    assert not re.search(r"/(home|work|opt|root|Users|tmp)/", text)


def test_workflows_are_for_everybody():
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    tried = jobs["tests"]["strategy"]["matrix"]
    assert tried["python"] == ["3.10", "3.11", "3.12", "3.13"]
    assert [name.split("-")[0] for name in tried["os"]] == ["ubuntu", "macos", "windows"]
    assert PROJECT["requires-python"] == ">=" + tried["python"][0]


@pytest.mark.slow
def test_build(tmp_path):
    """Source and wheel hold every file of the package, and the wheel alone runs."""
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path)]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    (source,) = tmp_path.glob("*.tar.gz")
    package = ROOT / "src/glassformer"
    files = {p.relative_to(package).as_posix() for p in package.rglob("*") if p.is_file()}
    files = {f for f in files if "__pycache__" not in f}
    docs = [*ROOT.glob("docs/explained/**/*"), *ROOT.glob("docs/**/tokens-before-after.png")]
    carried = {p.relative_to(ROOT).as_posix() for p in docs if p.is_file()}
    with zipfile.ZipFile(wheel) as there:
        inside = {n.removeprefix("glassformer/") for n in there.namelist() if ".dist-info" not in n}
        assert inside == files | carried
    for kind in (".glass", ".taotp", ".safetensors", ".js", ".css", ".html"):
        assert any(name.endswith(kind) for name in inside), kind
    with tarfile.open(source) as there:
        names = {name.split("/", 1)[-1] for name in there.getnames()}
    assert {f"src/glassformer/{f}" for f in files} < names
    assert {"README.md", "LICENSE", "CITATION.cff", "tests/test_docs.py", "mkdocs.yml"} < names

    target = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as there:
        there.extractall(target)  # pure Python: what pip install --no-deps --target does
    output = "import glassformer; print(glassformer.__file__)"
    for words, expected in [
        (["-c", output], str(target / "glassformer/__init__.py")),
        (["-m", "glassformer", "run", "hello-world"], "Hello World!"),
        (["-m", "glassformer", "run", "adder-3.safetensors", "123+456"], "9750"),
        (["-m", "glassformer", "run", "lang/sort", "3 1 2 1 |"], "1 1 2 3"),
    ]:
        env = os.environ | {"PYTHONPATH": str(target)}
        run = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert run.stdout.strip() == expected, run.stdout + run.stderr
