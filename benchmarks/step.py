"""Break down the time of a training step of the book's model, and compare it with a lower bound.

One step of `fast` (batch 128) and of the book's recipe (batch 512), one thread: reading rows,
forward and loss, backward, optimizer. The lower bound is the time of the matrix products alone, at
the speed of a large product measured in the same run, and at the speed of products as small as the
step's own. Medians of processor time. Prints JSON.

    python benchmarks/step.py
"""

import json

from timing import medians  # isort: skip - it sets one thread

import torch

from glassformer import load_task
from glassformer.training.loop import Trainer
from glassformer.training.recipes import find_recipe

ROUNDS = 30


def flops(trainer, batch, last):
    """Return the operations of the matrix products of one forward pass, as the trainer computes it.

    The first block projects each (token, position) once; the last block computes queries and the
    MLP at the `last` positions only.
    """
    c = trainer.config
    D, F, V, T, L = c.d_model, c.d_mlp, c.d_vocab, c.n_ctx, c.n_layers
    T = trainer.data.length - 1
    total = 0
    for layer in range(L):
        queries = last if layer == L - 1 else T
        rows = V * T if layer == 0 else batch * T  # W_K, W_V
        query_rows = V * T if layer == 0 else batch * queries  # W_Q
        total += 2 * rows * D * D * 2 + 2 * query_rows * D * D
        total += 2 * 2 * batch * queries * T * D  # scores and weighted values
        total += 2 * batch * queries * (D * D + 2 * D * F)
    return total + 2 * batch * last * D * V


def measure(name):
    trainer = Trainer(load_task("addition:order=ones"), find_recipe(name), [0])
    r, objective, theta = trainer.recipe, trainer.objective, trainer.theta
    for _ in range(10):
        trainer._step()
    tokens, answer = trainer.data.tokens_for_step(trainer.seeds, 0)
    gradients, *_ = objective.gradients(theta, tokens, answer)
    weight = torch.as_tensor(objective._weight(answer))
    fed, last = torch.as_tensor(tokens), weight.shape[-1]
    targets = torch.as_tensor(answer[..., -last:])
    leaves = {n: t[0].detach().clone().requires_grad_() for n, t in theta.items()}

    def forward():
        return objective._loss(leaves, fed[0], weight[0], targets[0])[0]

    loss = forward()

    def backward():
        torch.autograd.grad(loss, list(leaves.values()), retain_graph=True)

    def update():
        # a learning rate of 0 changes nothing
        trainer.optimizer.step(dict(gradients), trainer.smoothed_loss * 0)

    large = torch.rand(1024, 1024)
    T = trainer.data.length - 1
    small, W = torch.rand(r.batch * T, r.d_model), torch.rand(r.d_model, r.d_mlp)
    whole, read, ahead, back, optimize, big, own = medians(
        ROUNDS,
        trainer._step,
        lambda: trainer.data.tokens_for_step(trainer.seeds, 5),
        forward,
        backward,
        update,
        lambda: large @ large,
        lambda: small @ W,
    )
    work = 3 * flops(trainer, r.batch, last)  # backward is twice forward
    speed, own_speed = 2 * 1024**3 / big, 2 * small.numel() * W.shape[1] / own
    return {
        "recipe": name, "batch": r.batch, "step_ms": whole * 1e3, "read_ms": read * 1e3,
        "forward_ms": ahead * 1e3, "backward_ms": back * 1e3, "optimizer_ms": optimize * 1e3,
        "gflop": work / 1e9, "gflops": work / whole / 1e9, "large_product_gflops": speed / 1e9,
        "own_product_gflops": own_speed / 1e9, "floor_ms": work / speed * 1e3,
        "floor_of_own_products_ms": work / own_speed * 1e3, "times_the_floor": whole * speed / work,
    }  # fmt: skip


if __name__ == "__main__":
    for name in ("fast", "book"):
        print(json.dumps({k: v if isinstance(v, (str, int)) else round(v, 3)
                          for k, v in measure(name).items()}), flush=True)  # fmt: skip
