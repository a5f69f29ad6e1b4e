"""Names of components: every view prints names that `find_component` accepts."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import Labels, load, load_task
from glassformer.circuits.edges import measure_ground_truth
from glassformer.circuits.obfuscation import obfuscate
from glassformer.core.components import (
    attention_name,
    component_names,
    find_component,
    head_name,
    head_names,
    mlp_name,
    neuron_name,
    normalize_name,
    slot_name,
    slots_or_stream,
)
from glassformer.lens.compare import compare
from glassformer.lens.explain import explain
from glassformer.lens.heads import classify_heads
from glassformer.lens.interventions.ablate import ablate, ablate_each, ablation_hook
from glassformer.lens.interventions.patch import interchange
from glassformer.lens.logits import (
    answer_attribution,
    direct_logit_attribution,
    lens_accuracy,
    logit_lens,
)
from glassformer.lens.stream import firing_rates, stream_norms
from helpers import largest_difference, raises, random_model

TOKENS = np.random.default_rng(0).integers(0, 7, (4, 6))


def printed(model, task):
    """Return the names of components in each view's output, without biases."""
    rows, example = (
        task.sample(20, np.random.default_rng(0)),
        task.batch(task.rows(0, 1))[0][0, :-1],
    )
    story, known, (copy, key) = (
        explain(model, example),
        measure_ground_truth(model, task),
        obfuscate(model, rotate=False, task=task),
    )
    there = head_names(model)[:2]
    views = {
        "ablations": [a.component for a in ablate_each(model, task, rows=rows)][1:],
        "stream": stream_norms(model, example).parts,
        "logit lens": logit_lens(model, example).parts,
        "stopping": [part for part, _ in lens_accuracy(model, task, rows)],
        "shares": answer_attribution(model, task, rows).parts,
        "attribution": direct_logit_attribution(model, example).parts,
        "neurons": [
            n
            for i in model.mlp_layers
            for n in direct_logit_attribution(model, example, neuron_layer=i).parts
        ],
        "firing": [n for i in model.mlp_layers for n in firing_rates(model, task, rows, i).names],
        "explain": [name for name, _ in story.shares]
        + [h.name for layer in story.layers for h in layer.heads],
        "explained neurons": [name for layer in story.layers for name, _ in layer.neurons],
        "explained slots": [
            slot_name(name)
            for layer in story.layers
            for name in layer.heads[0].wrote
            if layer.heads
        ],
        "heads": [str(h).partition("  ")[0] for h in classify_heads(model, task, rows).heads],
        "kinds": [
            name
            for result in classify_heads(model, task, rows).by_kind().values()
            for name in result
        ],
        "interchange": [interchange(model, task, part, n=5).what for part in there],
        "compare": compare(model, model, task, rows[:5]).attention.heads[0],
        "truth": [*known.parts, *(x["part"] for x in known.heads + known.neurons)],
        "flow": [x[end] for x in known.flow for end in ("from", "to")],
        "edges": [part for e in known.edges for part in (e.writer, e.reader)],
        "keys": [key.original_part(part) for part in component_names(copy, embeddings=True)],
    }
    return {
        view: [name for name in result if " bias" not in name] for view, result in views.items()
    }


@pytest.mark.parametrize("ref", ["adder-3.safetensors", "addition:digits=3,order=ones", "reverse"])
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.some(6)
def test_what_any_view_prints_is_found(ref, labelled):
    model = load(ref)
    model = model if labelled else replace(model, labels=Labels())
    for view, result in printed(model, load_task(model)).items():
        assert result or not model.mlp_layers, view
        for name in result:
            part = find_component(model, name)
            assert part.name == name or name in (
                *model.labels.heads.values(),
                *model.labels.neurons.values(),
            ), view
            assert part.hooks or name == "unembed"


def test_the_spelling():
    assert [
        head_name(0, 1),
        attention_name(2),
        mlp_name(0),
        neuron_name(0, 17),
        slot_name("carry"),
    ] == ["head 0.1", "attention 2", "mlp 0", "neuron 0.17", "slot carry"]
    model = random_model()
    assert component_names(model) == [
        "head 0.0",
        "head 0.1",
        "head 0.2",
        "mlp 0",
        "head 1.0",
        "head 1.1",
        "head 1.2",
        "mlp 1",
    ]
    assert component_names(model, embeddings=True) == [
        "embed",
        "pos_embed",
        *component_names(model),
        "unembed",
    ]
    assert component_names(random_model(positions="rotary", d_mlp=0, n_layers=1), True) == [
        "embed",
        *head_names(model)[:3],
        "unembed",
    ]


@pytest.mark.parametrize("old,new", [
    ("head:0.1", "head 0.1"), ("MLP 0", "mlp 0"), ("mlp:1", "mlp 1"), (" Neuron  0.3 ",
    "neuron 0.3"),
    ("embed", "embed"), ("slot:a:B c", "slot a:B c"), ("dims 4:8", "dims 4:8"), ("", ""),
])  # fmt: skip
def test_spellings_of_old(old, new):
    assert normalize_name(old) == new == normalize_name(new)
    model = replace(random_model(d_model=8), labels=Labels({"a:B c": (0, 2)}))
    if new:
        assert (
            find_component(model, old) == find_component(model, new)
            and find_component(model, old).name == new
        )


def test_names_that_people_gave():
    model = replace(random_model(), labels=Labels(heads={"0.1": "here", "1.0": "twice",
        "1.1": "twice"},
                                                  neurons={"0.2": "carry 1",
                                                  "0.3": "mlp 1"}))  # fmt: skip
    assert (
        find_component(model, "here") == find_component(model, "head 0.1")
        and find_component(model, "carry 1").name == "neuron 0.2"
    )
    assert find_component(model, "mlp 1").kind == "mlp"  # a part's own name comes first
    with raises("bad_argument", "'twice'", "head 1.0", "head 1.1"):
        find_component(model, "twice")


def test_embeddings_are_parts():
    model = random_model()
    twin = replace(
        model,
        weights=dict(model.weights) | {"pos_embed.W_pos": 0 * model.weights["pos_embed.W_pos"]},
    )
    assert (
        largest_difference(twin(TOKENS), model(TOKENS, hook=ablation_hook(model, "pos_embed")))
        < 1e-12
    )
    for how in ("mean", "resample"):  # they are the same whatever the input
        tap = ablation_hook(model, "pos_embed", how, TOKENS[::-1], np.random.default_rng(0))
        assert largest_difference(model(TOKENS), model(TOKENS, hook=tap)) == 0
    other = ablation_hook(model, "embed", "resample", TOKENS[:1], np.random.default_rng(0))
    assert largest_difference(model(TOKENS[:1]), model(TOKENS[1:2], hook=other)) < 1e-12
    with raises("bad_argument", "unembed"):
        ablation_hook(model, "unembed")
    task = load_task("reverse")
    assert (
        ablate(
            load("reverse"), task, "embed", rows=task.sample(50, np.random.default_rng(0))
        ).accuracy
        < 0.1
    )
    with raises("bad_argument", "embed"):
        interchange(load("reverse"), task, "embed")


@pytest.mark.parametrize(
    "name", ["embed 0", "embed x", "unembed 1", "slot 0:2", "dims rest [0:2]", "pos_embed"]
)
def test_what_is_no_part(name):
    with raises("not_found", name, "head 0.0"):
        find_component(random_model(positions="rotary"), name)
    with raises("not_found", name, "embed", "unembed"):
        find_component(random_model(positions="rotary", n_layers=0), name)


def test_slots_without_names():
    model = random_model()
    assert (
        slots_or_stream(model) == {"stream": (0, 4)}
        and find_component(model, "slot stream").index == find_component(model, "dims 0:4").index
    )
    assert find_component(model, "slot rest [1:3]").index == find_component(model, "dims 1:3").index
