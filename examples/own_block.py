"""Your own residual block: replace `x + f(x)` by `self.residual(x, f(x))` in an ordinary torch module.

    python examples/own_block.py      # 5 seeds, 2 CPU cores, 88 s of CPU time

Test accuracy on labels of random decision trees, mean ± deviation over 5 seeds (each has its own tree):

    linear     57.5 ± 7.0 % test accuracy
    euclidean  87.0 ± 1.6 % test accuracy
    lorentz    87.8 ± 1.0 % test accuracy
    lorentz minus euclidean: +0.8 points, 95 % interval -0.6 to +2.1

No difference between the Lorentz network and its Euclidean baseline is shown: the interval contains zero. Both have the
same blocks and the same search: two learning rates, each at its best epoch, chosen on validation data.
"""

# %%
import argparse
import copy

import scipy.stats
import torch
from torch.nn.functional import cross_entropy

import lresnet

parser = argparse.ArgumentParser(description="Train a network of your own residual blocks on a random decision tree.")
parser.add_argument("--epochs", type=int, default=40, help="epochs of each training (default: 40)")
parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
parser.add_argument("--samples", type=int, default=5000, help="number of points of each seed (default: 5000)")
args = parser.parse_args()
torch.set_num_threads(1)  # the tensors are small: more threads are slower

# %% [markdown]
# ## The data
# A random decision tree labels random points. Each of its nodes compares one of six features with a threshold, and each
# of its 64 leaves has one of four classes. A linear classifier fails on such data.


# %%
def decision_tree(samples, seed, depth=6, features=6, classes=4):
    """Return points [samples, features], uniform in [-1, 1], and their classes [samples]."""
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(samples, features, generator=generator) - 1
    node = torch.zeros(samples, dtype=torch.long)
    for level in range(depth):
        feature = torch.randint(features, (2**level,), generator=generator)
        threshold = torch.rand(2**level, generator=generator) - 0.5
        goes_right = x.gather(1, feature[node][:, None]).squeeze(1) > threshold[node]
        node = 2 * node + goes_right
    return x, torch.randint(classes, (2**depth,), generator=generator)[node]


# %% [markdown]
# ## The block
# This is a pre-norm block, as in a transformer. `make_residual` returns a module with two arguments, the skip
# connection and the branch. `"euclidean"` is the plain sum x + f(x), so one class serves both networks.


# %%
class Block(torch.nn.Module):
    """Pre-norm residual block, x ⊕ f(norm(x))."""

    def __init__(self, width, residual):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.f = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, width))
        self.residual = residual

    def forward(self, x):
        return self.residual(x, self.f(self.norm(x)))


def make_network(kind, inputs, classes, width=32, blocks=4):
    """Return a network on the hyperboloid (kind "lorentz"), in flat space ("euclidean"), or a linear classifier."""
    if kind == "linear":
        return torch.nn.Linear(inputs, classes)
    M = lresnet.Lorentz(curvature=-1 / width)  # every tensor is a batch of points of M
    if kind == "lorentz":
        options = {"scale": 2.0}  # with scale 2 and a small curvature the residual is x + y; without a scale, a mean
        head = lresnet.nn.LorentzMLR(width, classes, manifold=M)
    else:
        options = {}
        head = torch.nn.Linear(width, classes)
    parts = [Block(width, lresnet.make_residual(kind, M, **options)) for _ in range(blocks)]
    return torch.nn.Sequential(torch.nn.Linear(inputs, width), *parts, torch.nn.LayerNorm(width), head)


# %% [markdown]
# ## Training
# The epoch and the learning rate are chosen on validation points. The test points are used once per seed.


# %%
def accuracy(network, x, y):
    """Return the accuracy in percent."""
    with torch.no_grad():
        return 100 * (network.eval()(x).argmax(1) == y).float().mean().item()


def train(kind, data, seed, lr, batch=64):
    """Return the best validation accuracy and the network that reached it."""
    (x, y), validation = data["train"], data["validation"]
    torch.manual_seed(seed)
    network = make_network(kind, x.shape[1], classes=4)
    optimizer = lresnet.optim.make_adam(network, lr=lr)  # AdamW; curvature and residual weights have no weight decay
    best = (-1.0, network)
    for epoch in range(args.epochs):
        optimizer.scale_lr(1 - epoch / args.epochs)
        network.train()
        for rows in torch.randperm(len(y)).split(batch):
            optimizer.zero_grad()
            cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
        score = accuracy(network, *validation)
        if score > best[0]:
            best = (score, copy.deepcopy(network))
    return best


results = {"linear": [], "euclidean": [], "lorentz": []}
for seed in range(args.seeds):
    x, y = decision_tree(args.samples, seed)
    sizes = [args.samples * share // 5 for share in (2, 1, 2)]
    data = dict(zip(("train", "validation", "test"), zip(x.split(sizes), y.split(sizes), strict=True), strict=True))
    for kind, scores in results.items():
        trained = [train(kind, data, seed, lr) for lr in (0.003, 0.01)]
        network = max(trained, key=lambda pair: pair[0])[1]
        scores.append(accuracy(network, *data["test"]))
        print(f"seed {seed}  {kind:9}  {scores[-1]:.1f} %", flush=True)

# %%
for kind, scores in results.items():
    values = torch.tensor(scores)
    print(f"{kind:9}  {values.mean():.1f} ± {values.std(correction=args.seeds > 1):.1f} % test accuracy")
if args.seeds > 1:
    difference = torch.tensor(results["lorentz"]).double() - torch.tensor(results["euclidean"]).double()
    low, high = scipy.stats.ttest_1samp(difference.numpy(), 0).confidence_interval(0.95)
    print(f"lorentz minus euclidean: {difference.mean():+.1f} points, 95 % interval {low:+.1f} to {high:+.1f}")
