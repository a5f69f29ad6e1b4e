"""Ground truth: interventions confirm the data flow, on programs and on random models."""

import json
from dataclasses import replace

import numpy as np
import pytest

from cases import CASES
from glassformer import GlassformerError, Labels, Model, load, load_task
from glassformer.circuits import wiring
from glassformer.circuits.edges import measure_ground_truth, named_slots
from glassformer.circuits.grading import score_edges, subspace_overlap
from helpers import largest_difference, raises, random_model

REFS = list(dict.fromkeys(ref for ref, _, _ in CASES))
REFS += [
    "modular-addition:variant=clock",
    "modular-addition:variant=pizza",
    "search:variant=book",
    "lookup",
]
KINDS = [
    {}, {"norm": "rms"}, {"norm": "none"}, {"norm_first": False}, {"norm_first": False,
    "norm": "none"},
    {"norm": "rms", "norm_first": False}, {"positions": "rotary"}, {"positions": "sinusoidal"},
    {"positions": "alibi"},
    {"positions": "none"}, {"qk_norm": True}, {"tied": True}, {"mask": "none"}, {"n_layers": 0},
    {"n_layers": 3},
    {"n_layers": 0, "norm": "none"}, {"n_layers": 0, "norm_first": False}, {"d_mlp": 0},
    {"gated": True},
    {"extras": True}, {"extras": True, "norm_first": False},
]  # fmt: skip


def examples(model: Model, n: int = 50):
    rng = np.random.default_rng(0)
    if not model.task:
        tokens = rng.integers(0, model.config.d_vocab, (n, min(8, model.config.n_ctx)))
        return tokens, np.ones(tokens.shape, dtype=bool)
    task = load_task(model)
    rows = task.sample(n, rng)
    tokens, answer = task.batch(rows[task.defined(rows)])
    return tokens[:, :-1], answer[:, 1:]


def moved(model: Model, edges, tokens, asked):
    with np.errstate(all="ignore"):
        before = model(tokens, hook=lambda name, value: value)[asked]
        return largest_difference(before, model(tokens, hook=wiring.CutEdges(model, edges))[asked])


@pytest.mark.parametrize("ref", REFS)
@pytest.mark.some(4)
def test_absent_edges_carry_nothing(ref):
    """All edges that are not in the truth, cut at once, move no logit beyond rounding."""
    model = load(ref)
    tokens, asked = examples(model)
    present = {e[:3] for e in wiring.find_edges(model, named_slots(model))}
    assert present <= set(wiring.possible_edges(model))
    assert moved(model, set(wiring.possible_edges(model)) - present, tokens, asked) < 1e-10


@pytest.mark.parametrize("ref", [
    "hello-world:variant=zero-pos", "reverse", "modular-addition:operation=-", "lookup:table=xor",
    "add-mod:digits=2",
    "search:prefix=3,vocab=10,block=20", "sort:vocab=20", "addition:digits=1,variant=book",
    "addition:digits=10",
    "addition:digits=3,order=ones", "addition:digits=2,padding=none", "multiplication:digits=2",
    "max.taotp",
])  # fmt: skip
@pytest.mark.some(4)
def test_absent_weights_carry_nothing(ref):
    """Weights of all absent edges between parts and slots, set to 0, change nothing; so do dead
    neurons.
    """
    model = load(ref)
    tokens, asked = examples(model)
    result = measure_ground_truth(model, load_task(model) if model.task else None)
    weights = {n: w.copy() for n, w in model.weights.items()}
    slots, heads = named_slots(model), {h["part"]: h for h in result.heads}
    dropped = 0
    for part, head in heads.items():
        i, h = map(int, part.removeprefix("head ").split("."))
        for name, (a, b) in slots.items():
            for array, key in (("W_Q", "query"), ("W_K", "key"), ("W_V", "value")):
                if name not in head[key]:
                    dropped += weights[f"blocks.{i}.attn.{array}"][h, a:b].size
                    weights[f"blocks.{i}.attn.{array}"][h, a:b] = 0
            if name not in head["output"]:
                weights[f"blocks.{i}.attn.W_O"][h, :, a:b] = 0
    for neuron in result.neurons:
        i, f = map(int, neuron["part"].removeprefix("neuron ").split("."))
        for name, (a, b) in slots.items():
            if name not in neuron["reads"]:
                weights[f"blocks.{i}.mlp.W_in"][a:b, f] = 0
            if name not in neuron["writes"]:
                weights[f"blocks.{i}.mlp.W_out"][f, a:b] = 0
    assert dropped or len(slots) == 1 or not heads
    with np.errstate(all="ignore"):
        assert np.array_equal(replace(model, weights=weights)(tokens)[asked], model(tokens)[asked])


@pytest.mark.parametrize("ref,edge", [
    ("reverse", ("pos_embed", "head 0.0", "q")), ("reverse", ("embed", "head 0.0", "v")),
    ("reverse", ("head 0.0", "unembed", "logits")), ("multiplication:digits=2", ("head 0.1",
    "head 1.0", "q")),
    ("addition:digits=2,variant=book", ("head 0.3", "mlp 0", "in")),
    ("search:prefix=3,vocab=10,block=20",
    ("head 1.0", "head 2.0", "v")), ("modular-addition:variant=clock", ("head 0.0", "mlp 0", "in")),
    ("modular-addition", ("mlp 0", "unembed", "logits")),
])  # fmt: skip
@pytest.mark.some(4)
def test_a_present_edge_carries_something(ref, edge):
    model = load(ref)
    result = next(
        e
        for e in measure_ground_truth(model, load_task(model)).edges
        if (e.writer, e.reader, e.port) == edge
    )
    assert result.matters and result.changed > 0.05 and result.shift > 1e-3 and result.via
    assert (
        abs(moved(model, [edge], *examples(model)) - result.shift) < 2
    )  # they looked at other rows


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.some(11)
def test_random_wiring(kind, seed):
    """Random blocks of slots × parts are taken out of a random model: the edges are those that
    carry something.
    """
    model = random_model(seed, **({"extras": False, "d_model": 6} | kind))
    rng, slots = np.random.default_rng(seed), {"a": (0, 2), "b": (2, 3), "c": (3, 6)}
    weights = {n: w.copy() for n, w in model.weights.items()}
    for name, w in weights.items():
        last = name.rpartition(".")[2]
        for a, b in slots.values():
            if last in ("W_E", "W_pos", "W_out"):
                w[:, a:b] *= rng.random() < 0.5
            elif last in ("W_in", "W_gate", "W_U"):
                w[a:b] *= rng.random() < 0.5
            elif last in ("W_Q", "W_K", "W_V"):
                w[:, a:b] *= rng.random((len(w), 1, 1)) < 0.5
            elif last == "W_O":
                w[..., a:b] *= rng.random((len(w), 1, 1)) < 0.5
    model = replace(model, weights=weights, labels=Labels(slots))
    tokens = rng.integers(0, 7, (20, 9))
    asked = np.ones(tokens.shape, dtype=bool)
    edges = wiring.find_edges(model, named_slots(model))
    present = {e[:3] for e in edges}
    assert moved(model, set(wiring.possible_edges(model)) - present, tokens, asked) < 1e-12
    result = measure_ground_truth(model)
    live = {e for e in present if e[1] in result.needed}
    still = {e for e in live if moved(model, [e], tokens, asked) < 1e-12}
    # With biases, a head may carry a constant: wherever it looks, it is the same.
    assert all(e[2] in "qk" for e in still) if "extras" in kind else not still
    json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.parametrize("kind", [k for k in KINDS if "extras" not in k], ids=str)
@pytest.mark.some(4)
def test_the_writers_are_all_there_is(kind):
    """A port from which every writer is cut sees nothing at all."""
    model = random_model(3, **({"extras": False} | kind))
    tokens = np.random.default_rng(0).integers(0, 7, (5, 9))
    for reader in [r for s in wiring.sublayers(model) for r in s.readers]:
        edges = [e for e in wiring.possible_edges(model) if e[1:] == (reader.part, reader.port)]
        seen, cut = {}, wiring.CutEdges(model, edges)

        def tap(name, value, cut=cut, seen=seen):
            seen[name] = cut(name, value)
            return seen[name]

        logits = model(tokens, hook=tap)
        kind_of, _, at = reader.part.partition(" ")
        if kind_of == "head":
            i, h = at.split(".")
            value = seen[f"blocks.{i}.attn.hook_{reader.port}"][:, :, int(h)]
        elif kind_of == "mlp":
            value = seen[f"blocks.{at}.mlp.hook_pre{'_linear' * (reader.port == 'gate')}"]
        else:
            value = logits
        assert np.abs(value).max() < 1e-12


def test_dead_dimensions_are_no_edges():
    """A value that is never written, a query without a key, a neuron that writes nothing:
    weights without effect.
    """
    model = random_model(0, extras=False, n_layers=1, n_heads=1)
    weights = {n: w.copy() for n, w in model.weights.items()}
    weights["blocks.0.attn.W_O"][0, 1] = 0
    weights["blocks.0.attn.W_V"][0, 0, [0, 2]] = 0  # coordinate 0 is read into dimension 1 alone
    weights["blocks.0.attn.W_K"][0, :, 2] = 0
    weights["blocks.0.attn.W_Q"][0, 1, :2] = 0  # coordinate 1 asks in dimension 2 alone
    weights["blocks.0.mlp.W_out"][3] = 0
    weights["blocks.0.mlp.W_in"][:, 4] = 0
    slots = {f"x{i}": (i, i + 1) for i in range(4)}
    result = measure_ground_truth(replace(model, weights=weights, labels=Labels(slots)))
    head = result.heads[0]
    assert set(head["value"]) == {"x1", "x2", "x3"} and set(head["query"]) == {"x0", "x2", "x3"}
    assert set(head["key"]) == set(head["output"]) == set(slots)
    assert [bool(n["reads"]) for n in result.neurons] == [True, True, True, False, False]
    assert [bool(n["writes"]) for n in result.neurons] == [True, True, True, False, False]


@pytest.mark.parametrize("norm_first", [True, False])
def test_gains_close_slots(norm_first):
    """A gain of 0 removes a slot from the edges that read the norm's output: after a post-norm,
    from all later edges.
    """
    model = random_model(1, extras=False, n_layers=1, n_heads=1, norm="rms", norm_first=norm_first)
    gain = np.array([0.0, 0.0, 1.0, 1.0])
    weights, labels = (
        dict(model.weights) | {"blocks.0.ln1.w": gain},
        Labels({"a": (0, 2), "b": (2, 4)}),
    )
    model = replace(model, weights=weights, labels=labels)
    via = {(w, r, p): set(v) for w, r, p, v in wiring.find_edges(model, named_slots(model))}
    assert via["embed", "head 0.0", "v"] == ({"b"} if norm_first else {"a", "b"})
    assert (
        via["embed", "mlp 0", "in"]
        == via["head 0.0", "mlp 0", "in"]
        == ({"a", "b"} if norm_first else {"b"})
    )
    assert via["mlp 0", "unembed", "logits"] == {"a", "b"}


def test_flow_between_parts_and_slots():
    """Flow has the edges of heads and slots, and known sizes where they can be computed by hand."""
    model = load("multiplication:digits=2")
    result = measure_ground_truth(model, load_task(model))
    flow = {(f["from"], f["to"], f["port"]): f for f in result.flow}
    for head in result.heads:
        ports = (("q", "query"), ("k", "key"), ("v", "value"))
        reads = {(f"slot {s}", head["part"], port) for port, key in ports for s in head[key]}
        assert reads == {f for f in flow if f[1] == head["part"]}
        assert {f[1] for f in flow if f[0] == head["part"]} == {f"slot {s}" for s in head["output"]}
    for slot in result.slots:
        name = f"slot {slot['name']}"
        assert set(slot["written_by"]) == {f[0] for f in flow if f[1] == name}
        assert set(slot["read_by"]) == {f[1] for f in flow if f[0] == name}
    # An edge from part to part goes through slots that the one writes and the other reads.
    assert all((e.writer, f"slot {s}", "out") in flow and (f"slot {s}", e.reader, e.port) in flow
               for e in result.edges for s in e.via)  # fmt: skip
    queries = [r["query"] for r in result.heads[0]["attention"]["rows"]]
    assert (
        queries == list(range(9)) and len(result.heads[2]["attention"]["rows"]) == 4
    )  # the last layer: answers alone
    model = load(
        "repeat-last:vocab=12"
    )  # points on a ring of radius √3, which the norm leaves alone
    wrote, read = measure_ground_truth(model, load_task(model)).flow
    assert (wrote["from"], wrote["to"], wrote["port"]) == ("embed", "slot token", "out")
    assert np.allclose([wrote["weight"], wrote["signal"]], [6, 3**0.5])
    at_most = 3 * np.sqrt(np.sum(np.cos(2 * np.pi * np.arange(12) / 12) ** 2))
    assert (read["from"], read["to"], read["port"]) == ("slot token", "unembed", "logits")
    assert np.isclose(read["signal"], at_most, rtol=1e-4)


def test_ground_truth_of_reversal():
    """A program whose circuit is known by hand."""
    model = load("reverse")
    result = measure_ground_truth(model, load_task(model))
    assert (
        result.named
        and result.idle == []
        and result.parts == ["embed", "pos_embed", "head 0.0", "unembed"]
    )
    (head,) = result.heads
    assert head["name"] == "reads the mirrored position"
    assert set(head["query"]) == set(head["key"]) == {"position"}
    assert [(c["from"], c["to"]) for c in head["copies"]] == [("token", "token")]
    rows = {r["query"]: r["keys"] for r in head["attention"]["rows"]}
    assert (
        all(rows[t] == [[9 - t, 1.0]] for t in range(5, 10))
        and len(rows[10]) > 1
        and head["attention"]["fixed"]
    )
    token, position = result.slots
    assert token["written_by"] == ["embed", "pos_embed", "head 0.0"] and token["read_by"] == [
        "head 0.0",
        "unembed",
    ]
    assert (position["start"], position["stop"], position["rank"]) == (3, 6, 2)  # a ring is flat
    assert np.allclose(result.directions("position") @ [0, 0, 0, 1, 1, 1], 0)


@pytest.mark.parametrize("ref,kinds", [
    ("addition:digits=1,variant=book", {("hard", True)}), ("sort:vocab=20", {("hard", False)}),
    ("modular-addition", {("soft", True)}),
])  # fmt: skip
def test_attention_by_content_and_by_place(ref, kinds):
    model = load(ref)
    heads = measure_ground_truth(model, load_task(model)).heads
    assert {(h["attention"]["kind"], h["attention"]["fixed"]) for h in heads} == kinds


@pytest.mark.slow
def test_a_model_without_names_has_a_truth_without_names():
    result = measure_ground_truth(random_model(0, extras=False))
    assert (
        not result.named
        and [s["name"] for s in result.slots] == ["stream"]
        and not result.heads[0]["name"]
    )
    assert (
        len(result.edges) == len(wiring.possible_edges(random_model(0, extras=False))) == 96
    )  # all to all
    assert result.inputs.endswith("rows of random tokens, seed 0")
    torch_model = random_model(0, extras=False).torch()
    assert measure_ground_truth(torch_model).model == result.model


def test_slots_of_parts_of_the_stream():
    model = replace(random_model(0), labels=Labels({"b": (2, 3), "none": (3, 3), "a": (0, 1)}))
    assert named_slots(model) == {
        "a": (0, 1),
        "rest [1:2]": (1, 2),
        "b": (2, 3),
        "rest [3:4]": (3, 4),
    }
    with raises("bad_argument", "'b'", 1, 2):
        measure_ground_truth(replace(model, labels=Labels({"a": (0, 2), "b": (1, 3)})))
    with raises("bad_argument", "addition"):
        measure_ground_truth(load("reverse"), load_task("addition"))


# ── scoring ────────────────────────────────────────────────────────────────────────────────────
def test_score_edges():
    model = load("reverse")
    result = measure_ground_truth(model, load_task(model))
    perfect = score_edges(result, [(e.writer, e.reader, e.port) for e in result.edges])
    assert (perfect.precision, perfect.recall, perfect.right) == (1, 1, 7)
    claims = [("pos_embed", "head 0.0", "q"), ("embed", "head 0.0", "q")]
    half = score_edges(result, claims)
    assert (half.precision, half.recall, half.wrong) == (0.5, 1 / 7, [("embed", "head 0.0", "q")])
    assert ("embed", "head 0.0", "v") in half.missed
    pairs = score_edges(result, [c[:2] for c in claims])  # without ports, both are right
    assert (pairs.precision, pairs.right, pairs.present) == (1, 2, 5)
    nothing = score_edges(result, [])
    assert (nothing.precision, nothing.recall) == (1, 0)


def test_score_edges_that_matter():
    model = load("modular-addition")  # what `=` says of itself never reaches a neuron's threshold
    result = measure_ground_truth(model, load_task(model))
    faint = [e for e in result.edges if not e.matters]
    assert faint and score_edges(result, [], all_edges=True).present == score_edges(
        result, []
    ).present + len(faint)


@pytest.mark.parametrize("claims,says", [
    ([("embed", "head 0.7")], "mean head 0.0"),
    ([("embed", "head 0.0"), ("embed", "head 0.0", "q")], "(writer, reader, port)"), ([("embed",)],
    "[1]"),
])  # fmt: skip
def test_claims_that_make_no_sense(claims, says):
    model = load("reverse")
    with pytest.raises(GlassformerError) as error:
        score_edges(measure_ground_truth(model, load_task(model)), claims)
    assert says in str(error.value)


def test_cut_refuses_edges_that_are_not_there():
    for edge in [
        ("head 0.0", "head 0.0", "q"),
        ("unembed", "embed", "q"),
        ("embed", "head 0.0", "logits"),
    ]:
        with raises("bad_argument", *edge):
            wiring.CutEdges(load("reverse"), [edge])


def test_subspace_overlap():
    eye = np.eye(5)
    assert subspace_overlap(eye[:2], eye[:2] @ np.eye(5)) == (1, 1)
    assert subspace_overlap(eye[:1], eye[:2]) == (1, 0.5) and subspace_overlap(
        eye[:2], eye[2:]
    ) == (0, 0)
    turned = [[1, 1, 0, 0, 0], [2, 2, 0, 0, 0]]  # one direction, twice, at 45 degrees
    assert np.allclose(subspace_overlap(turned, eye[:1]), (0.5, 0.5))
    with raises("bad_argument", "d_model", 5, 4):
        subspace_overlap(eye, np.eye(4))


# ── the command ────────────────────────────────────────────────────────────────────────────────
def test_command(call, tmp_path):
    path = tmp_path / "t.json"
    status, out, _ = call("ground-truth", "reverse", "--out", path)
    assert status == 0 and "reads the mirrored position" in out and "position · position" in out
    assert out.endswith(f"wrote {path}\n")
    status, out, _ = call("ground-truth", "reverse", "--json")
    assert json.loads(out) == json.loads(path.read_text()) and json.loads(out)["version"] == 1
    status, out, _ = call("ground-truth", "figure-8.2.taotp")  # has no task
    assert status == 0 and "random tokens" in out


@pytest.mark.parametrize("words,says", [
    (["ground-truth", "none-such"], "none-such"),
    (["ground-truth", "reverse", "--out", "/none/such.json"],
    "cannot be written"),
    (["ground-truth", "reverse", "--task", "addition"], "vocabulary"),
])  # fmt: skip
def test_command_with_bad_input(call, words, says):
    status, out, err = call(*words)
    assert status == 2 and not out and says in err and err.count("\n") == 1
