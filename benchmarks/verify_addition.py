"""Verify all 1,000,000 three-digit additions, against decoding one at a time; pairs per second.

The peer decodes as a reader of the booklet would: one input, the whole sequence computed again for
every token, no cache, no batch. It decodes a sample of the same pairs with the same weights; both
are reported per pair, in processor time on one thread, which other processes disturb less.

Pairs per second, for 3 digits (all pairs) and 4 digits (a slice of the 10^8): by processor time in
one process, and by the clock with one worker and with two. The clock figures need an idle machine.
"""

import itertools
import json
import statistics
import time

from timing import medians  # isort: skip - it sets one thread

import numpy as np

from glassformer import load, load_task
from glassformer.verification import verify, verify_events


def layer_norm(x, eps):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def one_at_a_time(model, tokens, steps):
    """A plain decoder: attention-only blocks with pre-LN and a tied head, one sequence."""
    c, w = model.config, model.weights
    for _ in range(steps):
        n = len(tokens)
        mask = np.tril(np.ones((n, n), dtype=bool))
        x = w["embed.W_E"][tokens] + w["pos_embed.W_pos"][:n]
        for i in range(c.n_layers):
            at = f"blocks.{i}.attn."
            y = layer_norm(x, c.eps)
            q, k, v = (np.einsum("nd,hdk->nhk", y, w[at + m]) for m in ("W_Q", "W_K", "W_V"))
            scores = np.where(
                mask[..., None],
                np.einsum("nhk,mhk->nmh", q, k) * (c.scale or c.d_head**-0.5),
                -np.inf,
            )
            e = np.exp(scores - scores.max(1, keepdims=True))
            z = np.einsum("nmh,mhk->nhk", e / e.sum(1, keepdims=True), v)
            x = x + np.einsum("nhk,hkd->nd", z, w[at + "W_O"])
            if (b := w.get(at + "b_O")) is not None:
                x = x + b
        logits = layer_norm(x, c.eps) @ w["embed.W_E"].T
        tokens = np.append(tokens, logits[-1].argmax())
    return tokens


def pairs_per_second(digits, workers, pairs=2_000_000):
    """Return pairs per second, by the clock and by this process' processor time.

    The measurement starts with the first finished chunk, which excludes the start of workers. With
    several workers the processor time lacks theirs.
    """
    model = load(f"addition:digits={digits}")
    events = verify_events(model, load_task(model), exhaustive=True, workers=workers)
    first = next(events)
    clock, processor = time.perf_counter(), time.process_time()
    last = next(itertools.dropwhile(lambda e: e.done < min(pairs, e.todo), events))
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    events.close()
    assert last.wrong == 0
    return (last.done - first.done) / clock, (last.done - first.done) / processor


def main():
    model = load("addition:digits=3")
    task = load_task(model)
    verdict = verify(model, task)
    rows = task.sample(500, np.random.default_rng(0))
    tokens, answer = task.batch(rows)
    prompt = int(answer[0].argmax())
    theirs, right = [], 0
    for part in tokens.reshape(10, 50, -1):
        start = time.process_time()
        answers = [one_at_a_time(model, row[:prompt], len(row) - prompt) for row in part]
        theirs.append((time.process_time() - start) / len(part))
        right += sum(map(np.array_equal, answers, part))
    a, b = (
        medians(3, lambda: verify(model, task), warm=0)[0] / verdict.checked,
        statistics.median(theirs),
    )
    speed = {}
    for digits in (3, 4):
        clock, processor = pairs_per_second(digits, 1)
        speed[f"pairs_per_second_{digits}_digits"] = {
            "processor_time": round(processor), "one_worker": round(clock),
            "two_workers": round(pairs_per_second(digits, 2)[0]),
        }  # fmt: skip
    print(json.dumps({
        "checked": verdict.checked, "wrong": verdict.wrong, "peer_right": f"{right} of {len(rows)}",
        "ours_us_per_pair": a * 1e6, "peer_us_per_pair": b * 1e6, "ratio": b / a, **speed,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
