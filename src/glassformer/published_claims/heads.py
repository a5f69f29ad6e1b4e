"""Claims on the twelve heads of the mod-113 report's model, measured on a model of that shape.

The model was trained here with the recipe `mod113-3x4` and is right on all pairs. It is not the
report's model, and another run may divide the work between the heads differently. It is too large
for the package: published/runs/mod113-3x4-heads.json has the measurements of its heads over all
12,769 pairs, with the command that made the file.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from . import Claim
from .measures import join_percents, read_run_file

WHERE = "section 4"


@cache
def head_records() -> list[dict[str, Any]]:
    return list(json.loads(read_run_file("mod113-3x4-heads.json"))["heads"])


def by_layer(measure: Callable[[dict[str, Any]], float]) -> list[float]:
    """Return the mean of a measure over the four heads of each layer."""
    return [sum(measure(h) for h in head_records()[4 * i : 4 * i + 4]) / 4 for i in range(3)]


def attention_share(*places: str) -> list[float]:
    return by_layer(lambda h: sum(h["looks_at"].get(p, 0.0) for p in places))


def first_layer_leads() -> bool:
    shares = attention_share("a", "b")
    return shares[0] > max(shares[1:])


def heads_by_kind() -> str:
    found: dict[str, list[str]] = {}
    for h in head_records():
        found.setdefault(h["kind"], []).append(h["head"])
    return "; ".join(f"{kind}: {' '.join(names)}" for kind, names in found.items())


CLAIMS = [
    Claim("report-4-operands", WHERE, "most attention from = is on the two numbers", "holds",
          "87%, 64%, 64%", lambda: join_percents(attention_share("a", "b")),
          "by layer, mean over four heads and all pairs"),
    Claim("report-4-later", WHERE, "the numbers get more of it in layers 1 and 2 than in layer 0",
          "wrong", True, first_layer_leads, "whether layer 0 has the largest share in our model"),
    Claim("report-4-plus", WHERE, "very little attention on +", "misleading", "5%, 19%, 19%",
          lambda: join_percents(attention_share("+")),
          "by layer; that layers 1 and 2 look there more, as the report also says, holds"),
    Claim("report-4-broad", WHERE, "layer 0 looks broadly, layers 1 and 2 sharply", "wrong",
          "1.25, 1.46, 1.43", lambda: ", ".join(f"{x:.2f}" for x in by_layer(lambda h: h["bits"])),
          "bits of entropy by layer in our model; an even look has 2"),
    Claim("report-4-self", WHERE, "self-heads mainly attend to =", "wrong", (0.3, 0.4),
          lambda: max(float(h["self"]) for h in head_records()),
          "the largest share on = of any head in our model; a self-head has 0.6"),
    Claim("report-4-kinds", WHERE, "heads for a, for b, for all inputs, and self-heads", "roughly",
          "first operand: 0.0; same-column: 0.1 0.3 2.0; second operand: 0.2; mixed: 1.0 1.1 1.2 "
          "1.3 2.1 2.2 2.3", heads_by_kind,
          "by written thresholds. On single inputs 7 of 12 change; the report has 0.3 in two "
          "classes"),
]  # fmt: skip
