"""Adversarial weights and declarations: `recheck` must never prove a wrong model."""

from dataclasses import replace

import numpy as np
import pytest

from compiler.compiled import SMALL, changed, every, proved, right, small
from glassformer import GlassformerError
from glassformer.compiler import compile, recheck
from glassformer.compiler.driver import PROVENANCE_KEY, load_declaration
from glassformer.core.vocabulary import Vocabulary
from helpers import raises

NAMES = list(SMALL)


def slot(c, name):
    return slice(*c.model.labels.slots[name])


def weights(c, *names):
    return [np.array(c.model.weights[n]) for n in names]


def refused_or_right(c, model):
    """No third outcome."""
    program = c.program
    tokens = every(len(program.tokens), program.length)
    held = proved(model)
    assert not held or right(model, program, tokens)
    return held


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.some(3)
def test_the_model_itself_is_proved_and_right(name):
    for dtype in ("float64", "float32"):
        c = small(name, dtype)
        assert refused_or_right(c, c.model)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by", [1e-12, 0.01, 1.0, -3.0])
@pytest.mark.some(5)
def test_something_stood_in_a_slot_before_its_value(name, by):
    """A slot, or the room for averages, that the embedding has written already."""
    c = small(name)
    W_E = weights(c, "embed.W_E")[0]
    times = {
        i: (t, s, len(code[0])) for i, t, s, code in c.model.provenance[PROVENANCE_KEY]["values"]
    }
    late = [range(s, s + n) for t, s, n in times.values() if t > 0]
    rooms = [range(a, b) for _, a, b in c.model.provenance[PROVENANCE_KEY]["room"]]
    for place in [*late, *rooms]:
        worse = W_E.copy()
        worse[:, place] += by
        refused_or_right(c, changed(c.model, {"embed.W_E": worse}))
        worse = W_E.copy()
        worse[1:, place] += by * np.resize([1, -1], len(place))
        refused_or_right(c, changed(c.model, {"embed.W_E": worse}))


@pytest.mark.parametrize("by", [1.0, -1.0, 100.0])
@pytest.mark.parametrize("where", ["ln_final.b", "blocks.0.ln1.b", "unembed.b_U",
                                   "blocks.0.attn.b_O", "blocks.0.attn.b_V"])  # fmt: skip
def test_biases_are_not_taken_for_gains(where, by):
    """A bias of ones is no gain of ones."""
    c = small("reverse")
    size = {"unembed.b_U": (c.model.config.d_vocab,), "blocks.0.attn.b_V": (1, 1)}
    h = c.model.config.n_heads, c.model.config.d_head
    shape = size.get(where, (c.model.config.d_model,)) if "b_V" not in where else h
    assert not proved(changed(c.model, {where: np.full(shape, by)}))
    assert proved(changed(c.model, {where: np.zeros(shape)}))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["reverse", "often", "table"])
@pytest.mark.some(3)
def test_numbers_whose_squares_are_none(name, dtype):
    """All numbers of the stream times something: norms square them."""
    c = small(name, dtype)
    outs = [n for n in c.model.weights if n.endswith(("W_E", "W_pos", "W_O", "W_out", "b_out"))]
    for eps in (0.0, 1e-5):
        for power in (-140, -70, -40, 0, 40, 63, 100):
            new = {n: np.ldexp(c.model.weights[n], power) for n in outs}
            entry = [[i, t, s, np.ldexp(code, power).tolist()]
                    for i, t, s, code in c.model.provenance[PROVENANCE_KEY]["values"]]  # fmt: skip
            with np.errstate(all="ignore"):
                held = refused_or_right(c, changed(c.model, new, {"values": entry}, eps=eps))
            assert held or power or not eps


@pytest.mark.parametrize(("dtype", "powers", "ups"), [
    ("float32", range(30, 46, 3), range(-157, -140, 2)),
    ("float64", range(180, 412, 48), range(-1086, -1066, 3)),
])  # fmt: skip
def test_underflow_after_a_norm(dtype, powers, ups):
    """A norm that makes the stream small, a head whose weights are the least floats there are."""
    source = "tokens = [0, 1, 2, 3, 4, 5, 6]\nlength = 3\nemit = (token + 1) % 7"
    c, outcomes = compile(source, dtype=dtype), set()
    outs = [n for n in c.model.weights if n.endswith(("W_E", "W_pos", "W_O"))]
    U, tokens = c.model.weights["unembed.W_U"], every(7, 3)
    for power in (0, *powers):
        new = {n: np.ldexp(c.model.weights[n], power) for n in outs}
        entry = [[i, t, s, np.ldexp(code, power).tolist()]
                for i, t, s, code in c.model.provenance[PROVENANCE_KEY]["values"]]  # fmt: skip
        for up in (0, *ups):
            model = changed(c.model, {**new, "unembed.W_U": np.ldexp(U, up)}, {"values": entry})
            outcomes.add((right(model, c.program, tokens), proved(model)))
    assert outcomes == {(True, True), (True, False), (False, False)}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("power", [20, 60, 64, 100, 120])
def test_unread_numbers_may_overflow(power, dtype):
    """A head that writes nothing and a neuron without readers: inf · 0 is NaN."""
    c = small("often", dtype)
    config, w = c.model.config, c.model.weights
    new = {n: np.concatenate([a, np.ones_like(a) * (not n.endswith("W_O"))]) for n, a in w.items()
           if ".attn." in n}  # fmt: skip
    for n in new:
        if n.endswith(("W_Q", "W_K")):
            new[n][-1] = np.ldexp(np.linspace(-1, 1, config.d_model), power)[:, None]
    scale = config.d_head**-0.5
    refused_or_right(c, changed(c.model, new, n_heads=config.n_heads + 1, scale=scale))
    new = {n: np.array(a) for n, a in w.items() if ".mlp." in n}
    for n, a in list(new.items()):
        axis = 0 if n.endswith("W_out") else a.ndim - 1
        if not n.endswith("b_out"):
            shape = list(a.shape)
            shape[axis] = 1
            new[n] = np.concatenate([a, np.zeros(shape, a.dtype)], axis)
        if n.endswith("W_in"):
            new[n][:, -1] = np.ldexp(np.linspace(-1, 1, config.d_model), power + 5)
    refused_or_right(c, changed(c.model, new, d_mlp=config.d_mlp + 1))


@pytest.mark.parametrize(("dtype", "power"), [
    *(("float64", p) for p in (10, 40, 60, 75, 120, 300, 480, 511)),
    *(("float32", p) for p in (10, 40, 60, 75, 110)),
])  # fmt: skip
def test_scores_beyond_all_numbers(power, dtype):
    c = small("reverse", dtype)
    new = {}
    for n, a in c.model.weights.items():
        if n.endswith(("W_Q", "W_K")):
            new[n] = np.ldexp(a, power)
            assert np.isfinite(new[n]).all()
    refused_or_right(c, changed(c.model, new))


def test_steps_whose_two_neurons_differ():
    """Where both are on, what one has more than the other is not lost."""
    c = small("often")
    for by in 10.0 ** np.arange(-8, 1):
        W_in = weights(c, "blocks.0.mlp.W_in")[0]
        W_in[:, 1::2] *= 1 + by
        refused_or_right(c, changed(c.model, {"blocks.0.mlp.W_in": W_in}))


def overlaid():
    """A table that reads a value over which averages of its own layer lie."""
    return compile(
        "tokens = [0, 1, 2, 3]\nlength = 3\n"
        "b = only(token, position == here.position - 1, default=0)\n"
        "n = count(token == 1)\ns = (token + 2 * b) % 4\nemit = (n + s) % 4"
    )


def test_averages_over_a_value_that_is_read_in_the_same_layer():
    c = overlaid()
    entry = c.model.provenance[PROVENANCE_KEY]
    assert entry["room"]
    for i, start, stop in entry["room"]:
        for _, _, at, code in entry["values"]:
            width = len(code[0])
            for shift in range(-2, width):
                to = at + shift
                if to < 0 or to + stop - start > c.model.config.d_model:
                    continue
                new = {}
                for n, a in c.model.weights.items():
                    a = np.array(a)
                    if n.endswith("W_O"):
                        a[..., to : to + stop - start] += a[..., start:stop]
                        a[..., start:stop] = 0
                    if n.endswith("W_in"):
                        a[to : to + stop - start] += a[start:stop]
                        a[start:stop] = 0
                    new[n] = a
                room = [
                    [j, to, to + stop - start] if j == i else [j, *r] for j, *r in entry["room"]
                ]
                refused_or_right(c, changed(c.model, new, {"room": room}))


@pytest.mark.parametrize("step", ["position / 2", "position * 2", "position - 5", "2 - position",
                                  "position / 2 if position > 1 else 7"])  # fmt: skip
def test_an_address_that_is_no_position(step):
    """Where there is no such position the beginning must be found: not just any."""
    c = compile(f"tokens = [0, 1, 2]\nlength = 4\ne = {step}\n"
                "emit = only(token, position == here.e, default=2)")  # fmt: skip
    assert refused_or_right(c, c.model)
    entry = c.model.provenance[PROVENANCE_KEY]
    sums = [i for i, v in enumerate(load_declaration(entry)[1].program.values) if v.name == "e"]
    fewer = [row for row in entry["values"] if row[0] not in sums]
    refused_or_right(c, changed(c.model, entry={"values": fewer}))


def test_a_source_that_means_something_else():
    c = small("reverse")
    for old, new in [("- 1", "- 2"), ('== "|"', '== "b"'), ("latest", "first"),
                     ('default="|"', 'default="a"'), ('["a", "b"', '["b", "a"'),
                     ("length = 5", "length = 6")]:  # fmt: skip
        source = SMALL["reverse"].replace(old, new)
        assert source != SMALL["reverse"]
        assert not proved(changed(c.model, entry={"source": source})), old
    again = SMALL["reverse"].replace("2 * here.bar", "here.bar + here.bar")
    assert again != SMALL["reverse"] and proved(changed(c.model, entry={"source": again}))


def test_vocabulary_must_match_the_program():
    c = small("reverse")
    v = c.model.vocabulary
    for tokens in (["<bos>", "b", "a", "|"], ["a", "<bos>", "b", "|"], ["<bos>", "a", "b", "."]):
        assert not proved(replace(c.model, vocabulary=Vocabulary(tokens, sep=v.sep)))
    assert proved(replace(c.model, vocabulary=Vocabulary(["<bos>", "a", "b", "|"], sep=" ")))
    for alike in ('1, "1"', '"a", "a"', '"<bos>", "a"', "True, 1", '"", "a"', '" ", "a"'):
        with raises(GlassformerError, "token"):
            compile(f"tokens = [{alike}]\nlength = 2\nemit = token")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.some(2)
def test_corners(dtype):
    """One token, one member, one position, members and combinations that never are."""
    for source in (
        "tokens = [0]\nlength = 1\nemit = 0",
        "tokens = [0, 1]\nlength = 1\nemit = token",
        "tokens = [0, 1, 2]\nlength = 3\nemit = 2",
        "tokens = [0, 1, 2]\nlength = 1\nemit = count(token == 1)",
        "tokens = [0, 1, 2]\nlength = 4\nemit = 1 if any(token == 1 and token == 2) else 2",
        "tokens = [0, 1, 2]\nlength = 4\nx = token + 1\ny = 2 - token\nn = latest(x, y == 1)\n"
        "emit = 0 if n == nothing else n - x if n > x else 1 if y == 2 - x else token",
        "tokens = [0, 1, 2]\nlength = 4\na = first(token)\nb = first(2 - token)\n"
        "emit = 0 if a + b == 1 else 1 if a > b else 2",
    ):
        c = compile(source, dtype=dtype)
        assert refused_or_right(c, c.model)
        # longer texts than the program knows, with anything there
        config = c.model.config
        if config.positions == "learned":
            P = np.concatenate(
                [c.model.weights["pos_embed.W_pos"], np.full((3, config.d_model), 9.0)]
            )
            longer = changed(c.model, {"pos_embed.W_pos": P.astype(dtype)}, n_ctx=len(P))
        else:
            longer = changed(c.model, n_ctx=config.n_ctx + 3)
        assert refused_or_right(c, longer)
        # the head says more for a token that the program never emits
        for t in range(config.d_vocab):
            U = np.array(c.model.weights["unembed.W_U"])
            for by in (1.0, 1e3):
                U[:3, t] += by * np.array([1, -1, 0])
                refused_or_right(c, changed(c.model, {"unembed.W_U": U}))


@pytest.mark.parametrize("entry", [
    {"values": [[10**6, 0, 0, []]]}, {"values": [[0, -1, 0, [[]]]]}, {"values": [[0, 0, 0, 7]]},
    {"values": []}, {"values": [[0, 0.5, 0, [[0.0]]]]}, {"room": [[0, 0, 5]]}, {"values": None},
    {"room": [[3, 10**9, 2 * 10**9]]}, {"source": ""}, {"source": 5}, {"options": {"n": 3}},
    {"source": "(" * 10_000}, {"source": "tokens = [0]\nlength = 1\nemit = __import__('os')"},
    {"values": [[0, 10**9, 0, [[1.0], [2.0], [3.0]]]]},
])  # fmt: skip
def test_malformed_declarations_are_refused(entry):
    with pytest.raises(GlassformerError):
        recheck(changed(small("reverse").model, entry=entry))


def test_room_must_be_in_the_stream_and_free():
    c = small("most")
    ((i, start, stop),) = c.model.provenance[PROVENANCE_KEY]["room"]
    for a, b in [(stop, start), (start, stop + 50), (0, 2), (start, start), (3, 5), (0, 10**6)]:
        assert not proved(changed(c.model, entry={"room": [[i, a, b]]}))
