"""The page as one file: bundled modules, a policy, and data that cannot break out."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from glassformer import Model, Vocabulary, load, report_page
from glassformer.core.model import Labels
from glassformer.report_page.payload import model_payload
from glassformer.report_page.report import Report, report
from glassformer.tasks.base import Task
from helpers import raises, random_model
from report_page.conftest import unpacked
from report_page.nasty import NASTY, nasty_model
from report_page.visit import SLOWLY

ADDER = "addition:digits=2"
WEB = Path(report_page.__file__).parents[1] / "web"
ALL_MODULES = [p.relative_to(WEB).with_suffix("").as_posix() for p in WEB.rglob("*.js")]


@pytest.fixture(scope="module")
def adder(tmp_path_factory):
    made = report([(ADDER, load(ADDER))], rows=50)
    return made, made.save(tmp_path_factory.mktemp("page") / "adder.html")


# ── modules ────────────────────────────────────────────────────────────────────────────────────
def test_every_module_is_in_the_page_once():
    names = report_page.module_order("page")
    assert names[-1] == "page" and len(names) == len(set(names))
    assert {*names, "engine"} == {*ALL_MODULES}
    for i, name in enumerate(names):
        assert {needed for needed, _ in report_page.module_imports(name)} <= {*names[:i]}, name


def test_the_engine_needs_nothing_of_the_page():
    engine = report_page.bundle(report_page.module_order("engine"))
    assert re.findall(r"\b(?:document|window|location|navigator)\b[.\[(]", engine) == []
    assert not {"store", "page", "charts"} & {*report_page.module_order("engine")}


def test_no_name_is_exported_twice():
    names = [
        name
        for each in report_page.module_order("page")
        for name in report_page.EXPORT.findall(report_page._read_web_file(f"{each}.js"))
    ]
    assert len(names) == len(set(names)), sorted({n for n in names if names.count(n) > 1})


def joined(monkeypatch, **texts):
    """Return modules with these texts as one script."""
    monkeypatch.setattr(report_page, "_read_web_file", lambda name: texts[name.removesuffix(".js")])
    return report_page.bundle(report_page.module_order("a"))


def test_modules_become_functions(engine, monkeypatch):
    script = joined(
        monkeypatch,
        a='import { two } from "./b.js";\nconst own = 1;\nexport const three = own + two();\n',
        b="const own = 2; // another\nexport function two() {\n  return own;\n}\n",
    )  # fmt: skip
    assert engine.tab.evaluate(f"(() => {{ {script} return three; }})()") == 3
    assert "import" not in script and "export" not in script


@pytest.mark.parametrize(("texts", "mentions"), [
    ({"a": 'import { x } from "./b.js";\n', "b": "const x = 1;\n"}, ["a.js", "x", "b.js"]),
    ({"a": 'import { x } from "./b.js";\n', "b": 'import { y } from "./a.js";\n'},
     ["a → b"]),
    ({"a": 'export default 1;\n'}, ["a.js", "export default 1;"]),
    ({"a": 'import * as b from "./b.js";\n'}, ["a.js", "import"]),
    ({"a": 'const x = "</SCRIPT>";\n'}, ["a.js", "script"]),
])  # fmt: skip
def test_modules_that_cannot_be_bundled(monkeypatch, texts, mentions):
    with raises("bad_argument", *mentions):
        joined(monkeypatch, **texts)


# ── the policy ─────────────────────────────────────────────────────────────────────────────────
def test_the_page_has_no_external_address(adder):
    text = adder[0].html().decode()
    # XML namespaces are not fetched
    result = re.findall(r"https?://(?!www\.w3\.org/)[^\s\"']*|@import|url\(|innerHTML|eval\(", text)
    assert result == []
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "default-src &#x27;none&#x27;" in policy and "worker-src blob:" in policy
    assert policy.count("sha256-") == 2 and "unsafe-eval" not in policy
    assert "connect-src" not in policy
    served = report_page.assemble(adder[0].data, {"token": "<b>", "base": ""}).decode()
    assert "connect-src &#x27;self&#x27;" in served and '"token":"\\u003cb\\u003e"' in served


def test_only_the_page_s_own_scripts_run(chromium, adder):
    context = chromium.new_context(offline=True)
    tab, output = context.new_page(), []
    tab.on("console", lambda m: output.append(m.text))
    tab.goto(adder[1].as_uri())
    expect(tab.locator("#answer")).not_to_be_empty(timeout=SLOWLY)
    assert output == []
    tab.evaluate("""() => { const s = document.createElement("script");
        s.textContent = "window.hacked = 1"; document.body.append(s); }""")
    assert tab.evaluate("typeof hacked") == "undefined"
    assert "Content Security Policy" in output[0]
    asked = "fetch('http://127.0.0.1:9/').then(() => 'went', (e) => String(e))"
    assert "Failed to fetch" in tab.evaluate(asked)
    assert any("default-src" in text or "connect-src" in text for text in output[1:])
    context.close()


def test_the_worker_computes_the_same_score(chromium, adder):
    context = chromium.new_context(offline=True)
    tab, output = context.new_page(), []
    tab.on("console", lambda m: output.append(m.text))
    tab.on("pageerror", lambda e: output.append(str(e)))
    tab.goto(adder[1].as_uri())
    both = tab.evaluate("""async () => {
        const m = readModel(JSON.parse(document.getElementById("data").textContent).models[0]);
        const actions = [{part: "head 0.0", how: "zero"}];
        const other = applyEdits(m, [{name: "embed.W_E", index: [3, 2], value: 0}]);
        const far = [await score(m), await score(m, actions), await score(other)];
        const near = [scoreNow(m), scoreNow(m, actions), scoreNow(other)];
        const bad = await score(m, [{part: "head 9.9", how: "zero"}]).catch((e) => e.message);
        return [far, near, bad];
    }""")
    assert both[0] == both[1] and both[0][0]["right"] == 50
    assert both[0][1]["right"] < 50 and both[0][2]["right"] < 50
    assert "head 9.9" in both[2]
    assert output == []
    context.close()


# ── markup ─────────────────────────────────────────────────────────────────────────────────────
class Nasty(Task):
    """A task with markup in all its texts."""

    ref, known = NASTY[1], ("<b>", NASTY[2])
    vocabulary, radix = Vocabulary(NASTY, sep="|"), (len(NASTY),)

    def batch(self, rows):
        tokens = np.concatenate([rows, rows], 1)
        return tokens, np.arange(2) >= np.ones((len(rows), 1))

    def classes(self, rows):
        return np.array([NASTY[int(x) % len(NASTY)] for x in rows[:, 0]], object)


def all_nasty(monkeypatch):
    """Return a page with markup in titles, tokens, labels, provenance, classes and verdict."""
    model = nasty_model()
    slots = {NASTY[i]: (i, i + 1) for i in range(4)}
    neurons = {f"0.{i}": NASTY[i] for i in range(5)}
    model = replace(model, labels=Labels(slots, dict(model.labels.heads), neurons))
    monkeypatch.setattr("glassformer.report_page.payload.task_if_known", lambda model: Nasty())
    reported = model_payload(model, NASTY[0], title=NASTY[0], inputs=["<b>", NASTY[2]])
    reported["verdict"] = {"holds": False, "text": NASTY[2]}
    return Report({"title": NASTY[1], "notes": NASTY, "footer": NASTY[2], "models": [reported]})


def test_no_text_of_a_model_breaks_out_of_the_page(monkeypatch):
    made = all_nasty(monkeypatch)
    text = made.html().decode()
    empty = {**made.data, "models": [], "title": "", "notes": [], "footer": ""}
    plain = report_page.assemble(empty).decode()
    for tag in ("<script", "</script", "<img", "<b>", "<!--"):
        assert text.lower().count(tag) == plain.lower().count(tag), tag
    result = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert "<" not in result[1] and json.loads(result[1]) == json.loads(json.dumps(made.data))


@pytest.mark.slow
def test_markup_in_a_model_is_shown_and_not_obeyed(chromium, monkeypatch, tmp_path):
    made = all_nasty(monkeypatch)
    path = made.save(tmp_path / "nasty.html")
    context = chromium.new_context(offline=True)
    tab, output = context.new_page(), []
    tab.on("console", lambda m: output.append(m.text))
    tab.on("pageerror", lambda e: output.append(str(e)))
    tab.goto(path.as_uri())
    expect(tab.locator("#answer")).not_to_be_empty(timeout=SLOWLY)
    for text in ("<b>", NASTY[2], "|".join([NASTY[0], NASTY[3]]), "<svg onload=hacked=1>"):
        tab.fill("#input", text)
        tab.press("#input", "Enter")
    tab.evaluate("""() => {
        for (const each of document.querySelectorAll("details")) each.open = true;
        for (const each of document.querySelectorAll("button")) each.click(); }""")
    tab.wait_for_timeout(300)
    assert tab.evaluate("typeof hacked") == "undefined"
    obeyed = "img, main script, [onerror], [onload], [onmouseover]"
    assert tab.locator(obeyed).count() == 0
    assert NASTY[2] in tab.evaluate("document.body.innerText")
    assert tab.title() == NASTY[1] == tab.evaluate("document.querySelector('h1').textContent")
    assert output == []
    context.close()


# ── size ──────────────────────────────────────────────────────────────────────────────────────
def test_the_page_of_the_adder_is_small():
    made = report([("addition:digits=3", load("addition:digits=3"))])
    assert len(made.html()) < 400_000
    assert len(made.data["models"][0]["task"]["examples"]["texts"]) == 2_000


def test_a_large_model_is_refused(monkeypatch):
    monkeypatch.setattr("glassformer.report_page.payload.MAX_NONZERO_WEIGHTS", 100)
    with raises("too_large", "any", "100"):
        model_payload(random_model(), "any")


def test_sparse_weights_are_stored_by_index(engine):
    model = random_model()
    sparse = {
        n: np.where(np.arange(w.size).reshape(w.shape) % 7, 0, w) for n, w in model.weights.items()
    }
    sparse["embed.W_E"] = -np.zeros_like(sparse["embed.W_E"])  # -0 is kept
    sparse["unembed.W_U"] = np.zeros_like(sparse["unembed.W_U"])
    model = Model(model.config, sparse, model.vocabulary)
    assert "at" in model_payload(model)["weights"]["blocks.0.attn.W_Q"]
    got = engine("Object.entries(m.weights).map(([n, w]) => [n, w.shape, pack(w.data)])", model)
    for name, shape, data in got:
        back = unpacked(data).reshape(shape)
        assert (back == model.weights[name]).all(), name
        assert (np.signbit(back) == np.signbit(model.weights[name])).all(), name
