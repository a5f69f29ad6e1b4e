"""Interventions, slots, contributions to logits and the score agree with Python."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from glassformer import GlassformerError, Model, hook, load, load_task, record
from glassformer.compiler.slot_readout import read_slots
from glassformer.core import components
from glassformer.generate import prompt_tokens
from glassformer.lens.explain import explain
from glassformer.lens.interventions.ablate import ablation_hook
from glassformer.lens.interventions.patch import patch_hook
from glassformer.lens.logits import logit_difference_shares
from glassformer.lens.stream import stream_hooks
from glassformer.verification.evaluation import row_margins, teacher_forced_margins
from helpers import largest_difference, random_model
from report_page.conftest import unpacked

LOGITS = "pack(forward(m.config, m.weights, x[0], interventionHook(m, x[1])).data)"
ADDER = "addition:digits=3,order=ones"


def tapped(engine, model, tokens, *actions):
    return unpacked(engine(LOGITS, model, list(map(int, tokens)), list(actions)))


# ── components────────────────────────────────────────────────────────────────────────────────────
def test_ablating_each_component_agrees_with_python(engine):
    model, tokens = load(ADDER), prompt_tokens(load(ADDER), "127+458")
    random = random_model(n_layers=2, norm_first=True)
    for m, text in ((model, tokens), (random, [3, 1, 4, 1])):
        names = [
            *components.component_names(m),
            "embed",
            "neuron 0.1",
            "position 1",
            "attention 0",
            "dims 1:3",
        ]
        names += map(components.slot_name, m.labels.slots)
        for name in names:
            wanted = m(text, hook=ablation_hook(m, name)).ravel()
            got = tapped(engine, m, text, {"part": name, "how": "zero"})
            assert largest_difference(wanted, got) <= 1e-12, name
    label = model.labels.heads["0.1"]
    both = [tapped(engine, model, tokens, {"part": p, "how": "zero"}) for p in (label, "head 0.1")]
    assert (both[0] == both[1]).all()
    assert largest_difference(both[0], model(tokens).ravel()) > 0.01


def test_means_are_over_the_examples(engine):
    model, tokens = load(ADDER), prompt_tokens(load(ADDER), "127+458")
    seen = engine("m.examples.map((e) => [...e.prompt, ...e.answer])", model)
    reference = np.array(seen[:: len(seen) // 100])[:, : len(tokens)]
    for name in ("head 0.0", "mlp 0", "slot digit", "position 2"):
        wanted = model(tokens, hook=ablation_hook(model, name, "mean", reference)).ravel()
        got = tapped(engine, model, tokens, {"part": name, "how": "mean"})
        assert largest_difference(wanted, got) <= 1e-11, name


def test_patching_from_another_input(engine):
    model = load(ADDER)
    tokens, other = prompt_tokens(model, "127+458"), prompt_tokens(model, "999+1")
    cache = record(model, np.array([other]))[1]
    for name in ("head 0.0", "mlp 0", "neuron 0.1", "slot column"):
        wanted = model(tokens, hook=patch_hook(model, cache, [name])).ravel()
        got = tapped(engine, model, tokens, {"part": name, "how": "from", "text": "999+1"})
        assert largest_difference(wanted, got) <= 1e-12, name


def test_the_mask_and_norms(engine):
    model, text = random_model(norm="layer"), [3, 1, 4, 1]
    wanted = replace(model, config=replace(model.config, mask="none"))(text).ravel()
    got = tapped(engine, model, text, {"part": "mask", "how": "zero"})
    assert largest_difference(wanted, got) <= 1e-12
    ones = hook(model, {"blocks.1.ln2.hook_scale": np.ones_like})
    wanted = model(text, hook=ones).ravel()
    got = tapped(engine, model, text, {"part": "norm blocks.1.ln2", "how": "zero"})
    assert largest_difference(wanted, got) <= 1e-12
    every = engine("componentNames(m)", model)
    assert "norm ln_final" in every and "mask" in every and "head 1.2" in every


def test_several_interventions(engine):
    model, text = random_model(), [3, 1, 4, 1]
    taps = [ablation_hook(model, name) for name in ("head 0.0", "mlp 1")]
    wanted = model(text, hook=lambda name, x: taps[1](name, taps[0](name, x))).ravel()
    both = [{"part": name, "how": "zero"} for name in ("head 0.0", "mlp 1")]
    assert largest_difference(wanted, tapped(engine, model, text, *both)) <= 1e-12


FIND = """x[0].map((name) => {
    try { return findComponent(m, name).name; } catch (e) { return e.code; }
})"""


@pytest.mark.parametrize("ref", [ADDER, "hello-world", "lang/reverse"])
def test_unknown_components(engine, ref):
    model = load(ref)
    names = ["head 0.0", "head:0.1", "HEAD 00.0", "mlp 9", "slot x", "nothing", "", "neuron 0",
             "dims 0:2", "dims 2:1", "position 99", *model.labels.heads.values()]  # fmt: skip

    def in_python(name):
        try:
            return components.find_component(model, name).name
        except GlassformerError as e:
            return e.code

    assert engine(FIND, model, names) == [in_python(name) for name in names]


def test_invalid_interventions(engine):
    tried = """x[0].map((action) => {
        try { interventionHook(m, [action]); return ""; } catch (e) { return e.code; }
    })"""
    actions = [{"part": "mask", "how": "mean"}, {"part": "head 0.0", "how": "loud"},
               {"part": "head 0.0", "how": "from", "text": "x"}]  # fmt: skip
    assert engine(tried, load(ADDER), actions) == ["bad_argument"] * 3


# ── the stream ─────────────────────────────────────────────────────────────────────────────────
SLOTS = "slotContents(m, record(m, x[0]), x[0])"


@pytest.mark.parametrize(
    ("ref", "text"),
    [(ADDER, "127+458"), ("reverse", "12345"), ("addition:digits=2", "45+78"), ("sort", "3 1 2"),
     ("search:prefix=3,vocab=10,block=20,variant=book", "1 2 3 4 5 6 1 2 3"),
     ("search:prefix=3,vocab=10,block=20", "1 2 3 4 5 6 1 2 3"),
     ("search:prefix=3,vocab=10,block=20,variant=hash", "1 2 3 4 5 6 1 2 3")],
)  # fmt: skip
def test_slot_contents_agree_with_explain(engine, ref, text):
    model = load(ref)
    tokens = prompt_tokens(model, text)
    story, result = explain(model, tokens), engine(SLOTS, model, tokens)
    results = [story.slots, *(layer.slots for layer in story.layers)]
    ends = ["embedding", *(list(stream_hooks(model))[1:][i] for i in _last_of_each_layer(model))]
    for sublayer, wanted in zip(ends, results, strict=True):
        here = {s["slot"]: s for s in result
                if s["sublayer"] == sublayer and s["position"] == len(tokens) - 1}  # fmt: skip
        for slot in wanted:
            got = here[slot.name]
            assert largest_difference(slot.values, got["numbers"]) <= 1e-12
            kinds = {
                "token": f"the code of {got['value']!r}",
                "position": f"position {got['value']}",
            }
            assert slot.means == kinds.get(got["kind"], ""), (sublayer, slot.name)
            assert not slot.erased or got["kind"] == "nothing", (sublayer, slot.name)
    assert {s["position"] for s in result} == set(range(len(tokens)))
    assert all(0 <= s["share"] <= 1 for s in result)


def _last_of_each_layer(model):
    per = [1 + model.has_mlp(i) for i in range(model.config.n_layers)]
    return [sum(per[: i + 1]) - 1 for i in range(len(per))]


@pytest.mark.parametrize(
    ("ref", "text"),
    [("lang/reverse", "3 1 2 |"), ("lang/dyck-1", "( ) ) ("), ("lang/sort", "3 1 |")],
)
def test_values_agree_with_the_interpreter(engine, ref, text):
    model = load(ref)
    tokens = prompt_tokens(model, text)
    result = engine(SLOTS, model, tokens)
    cache = record(model, np.array([tokens]))[1]
    names = ["embedding", *list(stream_hooks(model))[1:]]
    assert {s["sublayer"] for s in result} == set(names)
    for at in range(1, len(tokens)):
        for value in read_slots(model, tokens[: at + 1], partial(_stream, cache, at)):
            place = value.place.replace("embed", "embedding")
            got = next(s for s in result if (s["sublayer"], s["position"], s["slot"])
                       == (place, at, value.name))  # fmt: skip
            assert (got["value"], got["means"]) == (value.holds, value.means)
            assert abs(got["share"] - max(0, 1 - value.off)) < 1e-9
    assert all(s["means"] == s["value"] for s in result if s["means"])


def _stream(cache, at, time):
    """Return the stream at a position: time 0 is the embedding, then attention and MLP by turns."""
    if time == 0:
        return cache["hook_embed"][0, at] + (cache.get("hook_pos_embed", {at: 0}))[at]
    here = f"blocks.{(time - 1) // 2}.hook_resid_"
    return cache[here + ("mid" if time % 2 and f"{here}mid" in cache else "post")][0, at]


def test_a_logit_is_the_sum_of_contributions(engine):
    sums = """(() => { const cache = record(m, x[0]), at = x[0].length - 1; return x[1].map(
        (v) => [logitContributions(m, cache, at, v),
            cache.logits.data[at * m.config.d_vocab + v]]); })()"""
    for seed, (norm, tied) in enumerate([("layer", True), ("rms", False), ("none", True)]):
        model, text = random_model(seed, norm=norm, tied=tied), [3, 1, 4, 1]
        result = engine(sums, model, text, [2, 5])
        for each, logit in result:
            assert abs(sum(s["amount"] for s in each) - logit) <= 1e-11 * max(1, abs(logit))
        cache = record(model, np.array([text]))[1]
        pair = np.array([[2]]), np.array([[5]])
        wanted = logit_difference_shares(model, cache, *pair, positions=slice(-1, None))
        got = [a["amount"] - b["amount"] for a, b in zip(result[0][0], result[1][0], strict=True)]
        assert [s["part"] for s in result[0][0]] == [name for name, _ in wanted]
        assert largest_difference([float(s[0, 0]) for _, s in wanted], got) <= 1e-11


def test_contributions_of_ablated_and_post_norm_models(engine):
    post = random_model(norm_first=False)
    assert engine("logitContributions(m, record(m, [1, 2]), 1, 3).map((s) => s.part)", post) == [
        "stream"
    ]
    model = load(ADDER)
    text = prompt_tokens(model, "127+458")
    got = engine("""(() => {
        const cache = record(m, x[0], interventionHook(m, [{part: "slot digit", how: "zero"}]));
        const all = logitContributions(m, cache, x[0].length - 1, 5);
        const logit = cache.logits.data.at(-m.config.d_vocab + 5);
        return [all.reduce((sum, s) => sum + s.amount, 0), logit, all.at(-1).part];
    })()""", model, text)  # fmt: skip
    assert abs(got[0] - got[1]) < 1e-9 and got[2] == "ablated"


# ── the summary ────────────────────────────────────────────────────────────────────────────────
SAY = """(() => { const ran = run(m, x[0]), step = ran.steps[x[1]];
    const read = ran.tokens.slice(0, step.at);
    return summarizeStep(m, record(m, read), step, x[2], read); })()"""


@pytest.mark.parametrize(
    ("ref", "text", "step", "head", "says"),
    [
        (ADDER, "123+456", 0, [0, 0],
         "`ahead` reads 3 and 6, a and b of the column to write; then comes 9"),
        (ADDER, "123+456", 1, [0, 0],
         "`ahead` reads 2 and 5, a and b of the column to write; then comes 7"),
        ("addition:digits=3", "123+456", 0, [0, 0],
         "`adds the operands` reads 123+456, all of a and b; then comes 0"),
        ("addition:digits=3,variant=book", "123+456", 1, [0, 1],
         "`10s of a` reads 2, the tens of a; then comes 5"),
        ("reverse", "12345", 0, None, "`reads the mirrored position` reads 5, x5; then comes 5"),
        ("lang/reverse", "3 1 2 |", 0, [0, 0], "`bar` reads |, so `bar` is 3; then comes 2"),
        ("hello-world", "", 0, None,
         "No head attends: the current token alone decides; then comes H")
    ],
)  # fmt: skip
def test_the_summary_of_a_step(engine, ref, text, step, head, says):
    assert engine(SAY, load(ref), text, step, head) == says


# ── the score ──────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("ref", [ADDER, "reverse", "lang/dyck-1", "modular-addition"])
def test_margins_agree_with_python(engine, ref):
    model = load(ref)
    got = engine("m.examples.map((e) => [e.prompt, e.answer, answerMargin(m, e, null)])", model)
    for prompt_, answer, margin in got[::7]:
        tokens = np.array([[*prompt_, *answer]])
        asked = np.arange(tokens.shape[1])[None] >= len(prompt_)
        wanted = float(row_margins(model, tokens, asked)[0])
        assert abs(wanted - margin) <= 1e-9 * max(1, abs(wanted))
    result = engine("scoreNow(m)", model)
    assert result["right"] == result["total"] == len(got) and result["wrong"] == []
    assert abs(result["worst"] - min(m for *_, m in got)) < 1e-12
    assert sum(c["total"] for c in result["byClass"].values()) == result["total"]


def test_an_ablated_head_breaks_sums(engine):
    model, task = load(ADDER), load_task(ADDER.replace(",dtype", ""))
    silenced = {"part": "head 0.1", "how": "zero"}
    result = engine("scoreNow(m, x[0])", model, [silenced])
    assert 0 < result["right"] < result["total"] and result["worst"] <= 0
    tap = ablation_hook(model, "head 0.1")
    for wrong in result["wrong"][:20]:
        a, b = map(int, wrong["text"].split("+"))
        tokens, answer = task.batch(np.array([[a, b]]))
        assert float(row_margins(model, tokens, answer, tap)[0]) <= 0
        assert wrong["expected"] == str(a + b).zfill(4)[::-1] != wrong["got"]
    by_class = result["byClass"]
    assert sum(c["right"] for c in by_class.values()) == result["right"]


def test_models_without_a_mask_decode(engine):
    """Teacher forcing would show the answer to a model without a mask."""
    task = load_task("addition:digits=1")
    model = random_model(d_vocab=12)
    model = Model(model.config, model.weights, task.vocabulary, task.ref)
    open_ = replace(model, config=replace(model.config, mask="none"))
    off = (
        "m.examples.map((e) => [e.prompt, e.answer, answerMargin(m, e, interventionHook(m, x[0]))])"
    )
    got = engine(off, model, [{"part": "mask", "how": "zero"}])
    apart = 0
    for asked, answer, margin in got[::9]:
        tokens = np.array([[*asked, *answer]])
        where = np.arange(tokens.shape[1])[None] >= len(asked)
        assert abs(float(row_margins(open_, tokens, where)[0]) - margin) < 1e-9
        apart += abs(float(teacher_forced_margins(open_, tokens, where).min()) - margin) > 1e-3
    assert apart


def test_non_finite_logits_are_wrong(engine):
    model = random_model()
    got = engine("""scoreNow({...withWeights(m, {"unembed.W_U": {shape: [4, 7], data: new Float64Array(28).fill(NaN)}}),
        task: {stop: null, parser: {}}, examples: [{text: "1", prompt: [1], answer: [2], expected: "2", class: ""}]})""", model)  # fmt: skip  # noqa: E501
    assert got["right"] == 0 and got["wrong"][0]["got"] == "logits not finite"


def test_classes_of_any_name(engine):
    model = load("reverse")
    named = """m.examples.slice(0, 4).map(
        (e, i) => Object.assign(Object.create(e), {class: i % 2 ? "__proto__" : "toString"}))"""
    got = engine(f"scoreNow({{...m, examples: {named}}}).byClass", model)
    assert engine("[({}).total, ({}).right]", None) == [None, None]
    assert got["toString"] == {"right": 2, "total": 2}


BROKEN = """(async () => {
    const real = Worker, text = document.body.appendChild(document.createElement("script"));
    const sent = [];
    Object.assign(text, { id: "engine", type: "text/plain" });
    let does = "answers";
    globalThis.Worker = class {
        postMessage({ id, data }) {
            sent.push(data !== null);
            const answer = { data: { id, result: "scored" } };
            if (does === "answers") setTimeout(() => this.onmessage(answer));
            if (does === "breaks") setTimeout(() => this.onerror({ message: "broken" }));
        }
        terminate() { sent.push("ended"); }
    };
    const ask = () => score(m).catch((e) => e.message), told = [await ask()];
    does = "breaks";
    told.push(await ask());
    does = "waits";
    const left = [ask(), ask()];
    forgetModels();
    told.push(...await Promise.all(left));
    globalThis.Worker = real;
    text.remove();
    return [told, sent];
})()"""


def test_a_worker_that_breaks_is_told_and_none_keeps_models_that_were_closed(engine):
    reported, sent = engine(BROKEN, load("addition:digits=1"))
    closed = ["score: other models were opened"] * 2
    assert reported == ["scored", "score: broken", *closed]
    assert sent == [True, False, "ended", True, False, "ended"]  # once to each worker
