"""One table of bad calls. A Python call, a command and a request are refused in the same words, and
with the same code: they reach the same function.
"""

from pathlib import Path

import pytest

import glassformer as gf
from glassformer.utils.errors import CODES
from server.conftest import serving

ADDER, TINY = "addition:digits=2", "addition:digits=1,order=ones"
BAD, NONE, DAMAGED, SOURCE = "bad_argument", "not_found", "damaged_file", "bad_source"
FAST = ["--recipe", "fast"]


def fit(**given):
    return gf.train(TINY, **({"recipe": "fast", "out": "m.safetensors"} | given))


def train(*words):
    return ["train", TINY, "--out", "m.safetensors", *FAST, *words]


def compare(**given):
    return gf.compare(ADDER, ADDER, **given)


# name: code, Python call, words of the command, request (or None: there is no such route)
TABLE = {
    # models and tasks
    "no such program": (
        NONE, lambda: gf.count("additoin"), "count additoin", ("model", {"ref": "additoin"})),
    "no such option": (
        BAD, lambda: gf.count("addition:digitz=3"), "count addition:digitz=3",
        ("model", {"ref": "addition:digitz=3"})),
    "an option out of range": (
        BAD, lambda: gf.count("addition:digits=99"), "count addition:digits=99",
        ("model", {"ref": "addition:digits=99"})),
    "an option of another type": (
        BAD, lambda: gf.count("addition:digits=x"), "count addition:digits=x",
        ("model", {"ref": "addition:digits=x"})),
    "an option twice": (
        BAD, lambda: gf.count("addition:digits=2,digits=3"), "count addition:digits=2,digits=3",
        ("model", {"ref": "addition:digits=2,digits=3"})),
    "no model": (BAD, lambda: gf.count(""), ["count", ""], ("model", {"ref": ""})),
    "no such value of an option": (
        BAD, lambda: gf.count("addition:variant=bok"), "count addition:variant=bok",
        ("model", {"ref": "addition:variant=bok"})),
    "options that exclude each other": (
        BAD, lambda: gf.count("addition:order=ones,variant=book"),
        "count addition:order=ones,variant=book",
        ("model", {"ref": "addition:order=ones,variant=book"})),
    "no such source of the library": (
        NONE, lambda: gf.count("lang/frist"), "count lang/frist",
        ("model", {"ref": "lang/frist"})),
    "no such option of a source": (
        SOURCE, lambda: gf.count("lang/first:vocb=3"), "count lang/first:vocb=3",
        ("model", {"ref": "lang/first:vocb=3"})),
    "no model of the board": (BAD, lambda: gf.adderboard(""), ["adderboard", ""], None),
    "no such file": (
        NONE, lambda: gf.count("none.safetensors"), "count none.safetensors", None),
    "no such source": (NONE, lambda: gf.compile("none.glass"), "compile none.glass", None),
    "a damaged checkpoint": (
        DAMAGED, lambda: gf.count("damaged.safetensors"), "count damaged.safetensors", None),
    "no such task to try": (NONE, lambda: gf.check_task("additoin"), "check-task additoin", None),
    # verify
    "a sample of none": (
        BAD, lambda: gf.verify(ADDER, sample=0), f"verify {ADDER} --sample 0",
        ("verify", {"ref": ADDER, "sample": 0})),
    "a sample that is too large": (
        BAD, lambda: gf.verify(ADDER, sample=10**30), f"verify {ADDER} --sample {10**30}",
        ("verify", {"ref": ADDER, "sample": 10**30})),
    "a sample that is no number": (
        BAD, lambda: gf.verify(ADDER, sample="x"), f"verify {ADDER} --sample x", None),
    "a seed below 0": (
        BAD, lambda: gf.verify(ADDER, seed=-1), f"verify {ADDER} --seed -1",
        ("verify", {"ref": ADDER, "seed": -1})),
    "a sample and all": (
        BAD, lambda: gf.verify(ADDER, sample=5, exhaustive=True),
        f"verify {ADDER} --all --sample 5",
        ("verify", {"ref": ADDER, "sample": 5, "exhaustive": True})),
    "no such task": (
        NONE, lambda: gf.verify(ADDER, "additoin"), f"verify {ADDER} --task additoin",
        ("verify", {"ref": ADDER, "task": "additoin"})),
    "a task of other tokens": (
        BAD, lambda: gf.verify(ADDER, "min"), f"verify {ADDER} --task min",
        ("verify", {"ref": ADDER, "task": "min"})),
    "no such model to verify": (
        NONE, lambda: gf.verify("additoin"), "verify additoin", ("verify", {"ref": "additoin"})),
    "no such option of the task": (
        BAD, lambda: gf.verify(ADDER, "addition:digitz=2"),
        f"verify {ADDER} --task addition:digitz=2",
        ("verify", {"ref": ADDER, "task": "addition:digitz=2"})),
    "a task of longer inputs": (
        BAD, lambda: gf.verify(ADDER, "addition:digits=3"),
        f"verify {ADDER} --task addition:digits=3",
        ("verify", {"ref": ADDER, "task": "addition:digits=3"})),
    "a domain that is too large": (
        BAD, lambda: gf.verify("addition:digits=10", exhaustive=True),
        "verify addition:digits=10 --all",
        ("verify", {"ref": "addition:digits=10", "exhaustive": True})),
    "no such float type": (
        BAD, lambda: gf.verify(ADDER, dtype="float99"), f"verify {ADDER} --dtype float99", None),
    "no process": (BAD, lambda: gf.verify(ADDER, workers=0), f"verify {ADDER} --workers 0", None),
    "a verdict that is no JSON": (
        BAD, lambda: gf.verify(ADDER, out="v.txt"), f"verify {ADDER} --out v.txt", None),
    "no such verdict": (NONE, lambda: gf.recheck(ADDER, "v.json"),
        f"verify {ADDER} --recheck v.json", None),
    "a damaged verdict": (
        DAMAGED, lambda: gf.recheck(ADDER, "damaged.json"),
        f"verify {ADDER} --recheck damaged.json", None),
    # prove
    "no such method": (
        BAD, lambda: gf.prove(ADDER, method="luck"), f"prove {ADDER} --method luck",
        ("prove", {"ref": ADDER, "method": "luck"})),
    "a seed of a proof": (
        BAD, lambda: gf.prove(ADDER, seed=2**64), f"prove {ADDER} --seed {2**64}",
        ("prove", {"ref": ADDER, "seed": 2**64})),
    "a seed of a proof below 0": (
        BAD, lambda: gf.prove(ADDER, seed=-1), f"prove {ADDER} --seed -1",
        ("prove", {"ref": ADDER, "seed": -1})),
    "no such task to prove": (
        NONE, lambda: gf.prove(ADDER, "additoin"), f"prove {ADDER} --task additoin",
        ("prove", {"ref": ADDER, "task": "additoin"})),
    "too many rows to enumerate": (
        BAD, lambda: gf.prove("addition:digits=10", method="enumeration"),
        "prove addition:digits=10 --method enumeration",
        ("prove", {"ref": "addition:digits=10", "method": "enumeration"})),
    "a certificate of no proof": (
        BAD, lambda: gf.prove(ADDER, accuracy=True, out="c.json"),
        f"prove {ADDER} --accuracy --out c.json", None),
    "a certificate that is no JSON": (
        BAD, lambda: gf.prove(ADDER, out="c.txt"), f"prove {ADDER} --out c.txt", None),
    "accuracy of two": (
        BAD, lambda: gf.prove(ADDER, accuracy=True, equal_to=ADDER),
        f"prove {ADDER} --accuracy --equal-to {ADDER}", None),
    # train
    "no such task to train on": (
        NONE, lambda: gf.train("additoin"), "train additoin --out m.safetensors",
        ("train", {"task": "additoin"})),
    "no such recipe": (
        NONE, lambda: fit(recipe="fasst"), f"train {TINY} --out m.safetensors --recipe fasst",
        ("train", {"task": TINY, "recipe": "fasst"})),
    "no such field": (
        NONE, lambda: fit(lrr=1), train("--set", "lrr=1"),
        ("train", {"task": TINY, "recipe": "fast", "settings": {"lrr": 1}})),
    "a field of another type": (
        BAD, lambda: fit(steps="many"), train("--set", "steps=many"),
        ("train", {"task": TINY, "recipe": "fast", "settings": {"steps": "many"}})),
    "a field out of range": (
        BAD, lambda: fit(lr=-1.0), train("--set", "lr=-1.0"),
        ("train", {"task": TINY, "recipe": "fast", "settings": {"lr": -1.0}})),
    "no such optimizer": (
        BAD, lambda: fit(optimizer="addam"), train("--set", "optimizer=addam"),
        ("train", {"task": TINY, "recipe": "fast", "settings": {"optimizer": "addam"}})),
    "fields that need each other": (
        BAD, lambda: fit(restart_after_steps=5, stop_after_successes=0),
        train("--set", "restart_after_steps=5", "--set", "stop_after_successes=0"),
        ("train", {"task": TINY, "recipe": "fast",
                   "settings": {"restart_after_steps": 5, "stop_after_successes": 0}})),
    "a training seed": (
        BAD, lambda: fit(seeds=[-1], out=None), [*train("--seed", "-1")],
        ("train", {"task": TINY, "recipe": "fast", "seed": -1})),
    "another ending": (
        BAD, lambda: fit(out="m.pt"), f"train {TINY} --recipe fast --out m.pt", None),
    "a history that is none": (
        BAD, lambda: fit(history="h.txt"), train("--history", "h.txt"), None),
    "no such device": (BAD, lambda: fit(device="abacus"), train("--device", "abacus"), None),
    "a folder that is a file": (
        BAD, lambda: gf.ablation_study(TINY, "fast", out="x.pt"),
        f"ablation-study {TINY} --recipe fast --out x.pt", None),
    "no such ablation": (
        NONE, lambda: gf.ablation_study(TINY, "fast", only=["no-head"]),
        f"ablation-study {TINY} --recipe fast --only no-head", None),
    "no such sweep": (NONE, lambda: gf.sweep("none.toml"), "sweep none.toml", None),
    "no worker": (
        BAD, lambda: gf.sweep("none.toml", workers=0), "sweep none.toml --workers 0", None),
    # run
    "no step": (
        BAD, lambda: gf.run("hello-world", steps=-1), "run hello-world --steps -1", None),
    "a temperature below 0": (
        BAD, lambda: gf.run("hello-world", temperature=-1.0), "run hello-world --temperature -1",
        None),
    "no such token": (BAD, lambda: gf.run("min", "x"), "run min x", None),
    "no such token to explain": (BAD, lambda: gf.explain("min", "x"), "explain min x", None),
    # looking inside, and files
    "a comparison of none": (
        BAD, lambda: compare(sample=0), f"compare {ADDER} {ADDER} --sample 0", None),
    "two tasks": (BAD, lambda: gf.compare(ADDER, "min"), f"compare {ADDER} min", None),
    "no such view": (
        NONE, lambda: gf.inspect(ADDER, only="hedas"), f"inspect {ADDER} --only hedas", None),
    "no such format": (
        BAD, lambda: gf.export(ADDER, "png", "x.png"), f"export {ADDER} --to png --out x.png",
        None),
    "a tolerance below 0": (
        BAD, lambda: gf.export(ADDER, "torch", "x.py", tolerance=-1.0),
        f"export {ADDER} --to torch --out x.py --tolerance -1", None),
    "ground truth that is no JSON": (
        BAD, lambda: gf.ground_truth(ADDER, out="t.txt"), f"ground-truth {ADDER} --out t.txt",
        None),
    "a key that is no JSON": (
        BAD, lambda: gf.obfuscate(ADDER, out="m.safetensors", key="k.txt"),
        f"obfuscate {ADDER} --out m.safetensors --key k.txt", None),
    "a model that is none": (
        BAD, lambda: gf.compile("lang/first", out="m.pt"), "compile lang/first --out m.pt", None),
    "no such claim": (BAD, lambda: gf.claims("nonesuch"), "claims nonesuch", None),
    "no such list": (BAD, lambda: gf.list("modles"), "list modles", None),
    "no such level": (
        NONE, lambda: gf.check_puzzle("ecko", "a.glass"), "puzzle check ecko a.glass",
        ("check", {"level": "ecko", "text": "x = 1"})),
    "no second": (
        BAD, lambda: gf.check_puzzle("echo", "x", seconds=0),
        "puzzle check echo a.taotp --seconds 0", None),
    "a page that is none": (
        BAD, lambda: gf.report(ADDER, Path("r.txt")), f"report {ADDER} --out r.txt", None),
    "no minute": (BAD, lambda: gf.studio(ADDER, minutes=0.0), f"studio {ADDER} --minutes 0", None),
}  # fmt: skip


@pytest.fixture(scope="module")
def served():
    with serving([ADDER]) as result:
        yield result


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("damaged.safetensors", "damaged.json"):
        (tmp_path / name).write_text("{")


@pytest.mark.parametrize("name", TABLE)
def test_python_and_the_command_refuse_alike(name, call, tmp_path):
    code, python, words, _ = TABLE[name]
    before = {*tmp_path.iterdir()}
    with pytest.raises(gf.GlassformerError) as refused:
        python()
    status, out, err = call(*(words.split() if isinstance(words, str) else words))
    assert (status, out) == (2, "")
    assert err.removeprefix("error: ").rstrip("\n") == "; ".join(str(refused.value).split("\n"))
    assert refused.value.code == code
    assert {*tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row[3]])
def test_a_request_is_refused_alike(name, served):
    code, python, _, (route, body) = TABLE[name]
    with pytest.raises(gf.GlassformerError) as refused:
        python()
    reported = (served.post(route, **body).json() if route in ("model", "check")
            else served.job(route, **body))  # fmt: skip
    assert "\n".join(each["message"] for each in reported["errors"]) == str(refused.value)
    assert reported["code"] == code


def test_a_setting_of_a_page_is_a_field_of_the_recipe(served, tmp_path):
    for name in ("out", "history", "snapshots", "start", "stop"):
        reported = served.job("train", task=TINY, recipe="fast", settings={name: "x.safetensors"})
        assert reported["code"] == NONE and "no such field" in reported["errors"][0]["message"]
    assert not (tmp_path / "x.safetensors").exists()


def test_the_table_has_every_kind():
    assert sum(request is not None for *_, request in TABLE.values()) >= 30
    assert {row[0] for row in TABLE.values()} < {*CODES}


def test_every_code_is_documented():
    text = (Path(__file__).parents[1] / "docs/reference.md").read_text()
    assert all(f"| `{code}` | {meaning} |" in text for code, meaning in CODES.items())


def test_a_code_is_not_taken_from_the_callers_own_error():
    try:
        Path("none").read_text()
    except FileNotFoundError:
        with pytest.raises(gf.GlassformerError) as refused:
            gf.verify(ADDER, sample=0)
    assert refused.value.code == BAD
