"""Heads on a pre-trained backbone: hyperbolic and linear classifiers, frozen and fine-tuned, equal budget.

    python benchmarks/classifier_heads.py      # 5 seeds, 3 minutes of CPU time

A small convolutional network learns the digits 0 to 4 of scikit-learn's 8 x 8 images (UCI, 1,797 images). Then each
head learns all ten digits from 600 other images, on the frozen backbone or together with it, for 20 epochs. A tenth of
the 600 images chooses learning rate (0.001, 0.01 or 0.1; 0.001 or 0.01 for fine-tuning) and epoch. The seeds vary
backbone, images and head. The test images are the remaining 597.
"""

import argparse

import scipy.stats
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import lresnet

parser = argparse.ArgumentParser(description="Compare classification heads on a pre-trained backbone.")
parser.add_argument("--epochs", type=int, default=20, help="epochs of each training (default: 20)")
parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
args = parser.parse_args()
torch.set_num_threads(1)

digits = load_digits()
images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
labels = torch.tensor(digits.target)
WIDTH, CLASSES = 128, 10
HEADS = {
    "linear": lambda: nn.Linear(WIDTH, CLASSES),
    "LorentzMLR, K = -1": lambda: lresnet.nn.LorentzMLR(WIDTH, CLASSES, manifold=lresnet.Lorentz(-1.0)),
    "Prototypes, K = -1": lambda: lresnet.nn.Prototypes(WIDTH, CLASSES, manifold=lresnet.Lorentz(-1.0)),
    "ClassifierHead linear": lambda: lresnet.nn.ClassifierHead(WIDTH, CLASSES, "linear"),
    "ClassifierHead mlr": lambda: lresnet.nn.ClassifierHead(WIDTH, CLASSES, "mlr"),
    "ClassifierHead prototypes": lambda: lresnet.nn.ClassifierHead(WIDTH, CLASSES, "prototypes"),
}
RATES = {"frozen": (0.001, 0.01, 0.1), "fine-tuned": (0.001, 0.01)}


def data(rows):
    """Return the images with these numbers as a data set."""
    return TensorDataset(images[rows], labels[rows])


def pretrained(rows, seed):
    """Return a backbone that was trained on the digits 0 to 4 among ``rows``."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    layers += [nn.Conv2d(32, WIDTH, 3, 2, padding=1), nn.BatchNorm2d(WIDTH), nn.ReLU()]
    backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    config = lresnet.TrainConfig(epochs=10, lr=0.001, batch_size=50, seed=seed)
    lresnet.fit(data(rows[labels[rows] < 5]), nn.Sequential(backbone, nn.Linear(WIDTH, 5)), config, device="cpu")
    return backbone.state_dict(), backbone


def test_accuracy(backbone, weights, head, mode, seed, training, test):
    """Return the test accuracy at the learning rate and epoch that validation chooses."""
    task = lresnet.data.dataset_task(data(training), test=data(test))
    best = (-1.0, -1.0)
    for lr in RATES[mode]:
        backbone.load_state_dict(weights)
        backbone.requires_grad_(mode == "fine-tuned")
        torch.manual_seed(seed)
        net = nn.Sequential(backbone, head())
        config = lresnet.TrainConfig(
            epochs=args.epochs, lr=lr, lr_schedule="cosine", batch_size=50, eval_every=1, seed=seed
        )
        run = lresnet.fit(task, net, config, device="cpu")
        if run.record.validation > best[0]:
            best = (run.record.validation, run.evaluate()["accuracy"])
    return best[1]


results = {(mode, name): [] for mode in RATES for name in HEADS}
for seed in range(args.seeds):
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    weights, backbone = pretrained(order[:600], seed)
    for mode, name in results:
        scores = test_accuracy(backbone, weights, HEADS[name], mode, seed, order[600:1200], order[1200:])
        results[mode, name].append(scores)
for (mode, name), scores in results.items():
    values = torch.tensor(scores)
    line = f"{mode:10}  {name:26}  {values.mean():.1f} ± {values.std(correction=args.seeds > 1):.1f} %"
    if args.seeds > 1 and name != "ClassifierHead linear":
        difference = (values - torch.tensor(results[mode, "ClassifierHead linear"])).double()
        low, high = scipy.stats.ttest_1samp(difference.numpy(), 0).confidence_interval(0.95)
        line += f"  minus ClassifierHead linear: {difference.mean():+.1f}, 95 % interval {low:+.1f} to {high:+.1f}"
    print(line)
