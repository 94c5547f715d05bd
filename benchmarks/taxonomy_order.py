"""What the search of `--task hierarchy` selects by MRR and by ordered_mrr, and how well the chosen run lists ancestors.

    python benchmarks/taxonomy_order.py              # both tables of docs/howto/taxonomy.md, ten minutes on one core
    python benchmarks/taxonomy_order.py --methods    # Lorentz minus Euclidean by ordered_mrr, five minutes on one core

Taxonomies of 2,000 rows as in benchmarks/taxonomies.py, below "person", "artifact" and "animal"; the defaults of the
task were chosen on "animal". The trials are those that the search lists first, six without features and three with
texts, seed 0. "mrr" also ranks the parents of unseen leaves by the trained energy, as the search did before.

With the closure split, the yardstick is the share of nodes whose known ancestors stand above all other nodes and in the
right order. Held-out ancestors are left out of the lists, because training ranks them as it ranks other nodes.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from taxonomies import wordnet_taxonomy

from lresnet import TrainConfig, fit
from lresnet.data import HierarchyTask, hierarchy_task
from lresnet.data.graphs.wordnet import SOURCE
from lresnet.data.load import source_files
from lresnet.runs import EmbeddingConfig
from lresnet.runs.config import configure
from lresnet.runs.graph_trials import trials
from lresnet.runs.task_config import GraphTaskConfig
from lresnet.train.hierarchy_completion import HierarchyCompletion

ROOTS = ("person", "artifact", "animal")
TRIALS = {"closure": 6, "leaves": 3}


def listed_in_order(objective: HierarchyCompletion, model: Any) -> float:
    """Return the share of nodes, in percent, whose known ancestors come first and in the right order."""
    task = objective.task
    known: dict[int, list[int]] = {}
    for node, ancestor in task.train_pairs.T.tolist():
        known.setdefault(node, []).append(ancestor)
    held_out: dict[int, set[int]] = {}
    for node, ancestor in torch.cat([task.val_pairs, task.test_pairs], 1).T.tolist():
        held_out.setdefault(node, set()).add(ancestor)
    parents: dict[int, list[int]] = {}
    for child, parent in task.parents.T.tolist():
        parents.setdefault(child, []).append(parent)
    with torch.no_grad():
        z = objective.inputs.apply(model)
        order = torch.cat([objective.scores(model, z[some], z).argsort(1, descending=True) for some in _blocks(task)])
    right = 0
    for node, ancestors in known.items():
        steps, reached = {node: 0}, [node]
        for each in reached:  # breadth first: the shortest way up
            for parent in parents.get(each, ()):
                if parent not in steps:
                    steps[parent] = steps[each] + 1
                    reached.append(parent)
        left_out = held_out.get(node, set()) | {node}
        found = [one for one in order[node].tolist()[: len(steps) + 1] if one not in left_out][: len(ancestors)]
        levels = [steps[one] for one in found if one in steps]
        right += len(levels) == len(ancestors) and levels == sorted(levels)
    return 100 * right / len(known)


def _blocks(task: HierarchyTask) -> tuple[torch.Tensor, ...]:
    return torch.arange(task.num_nodes).split(256)


def methods(arrays: dict[str, np.ndarray]) -> None:
    """Print Lorentz minus Euclidean on the taxonomies of benchmarks/taxonomies.py: closure, two rates, three seeds."""
    for root in ("artifact", "person", "plant"):
        taxonomy, found = wordnet_taxonomy(root, arrays), []
        for seed in range(3):
            task = hierarchy_task(taxonomy, split="closure", seed=seed, node_features="learned")
            test = []
            for method in ("lorentz", "euclidean"):
                model = EmbeddingConfig("lorentz_embedding", method, hidden=16)
                runs = [
                    fit(task, model, TrainConfig(epochs=40, lr=rate, patience=20, seed=seed), device="cpu")
                    for rate in (0.05, 0.1)
                ]
                test.append(max(runs, key=lambda run: run.record.validation or 0.0).evaluate())
            found.append({name: test[0][name] - test[1][name] for name in test[0]})
        for name in ("ordered_mrr", "mrr", "order", "parent_first"):
            each = [one[name] for one in found]
            print(f"{root}, {name}: {np.mean(each):+.1f} ({', '.join(f'{one:+.1f}' for one in each)})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", action="store_true")
    torch.set_num_threads(1)
    (path,) = source_files(SOURCE).values()
    arrays = dict(np.load(path))
    if parser.parse_args().methods:
        methods(arrays)
        return
    graph = GraphTaskConfig("/taxonomy.csv", task="hierarchy")
    for split, count in TRIALS.items():
        more = " listed in order |" if split == "closure" else ""
        print(f"| {split} | selected by | trial | MRR | order | parent first | ordered MRR |{more}")
        for root in ROOTS:
            features = "learned" if split == "closure" else "own"
            task = hierarchy_task(wordnet_taxonomy(root, arrays), split=split, node_features=features)  # type: ignore[arg-type]
            before = replace(task, metric="mrr", new_term_alphas=(0.5,))
            for rule, own in {"mrr": before, "ordered_mrr": task}.items():
                found = []
                for number, settings in enumerate(trials("hierarchy", {}, 0, has_features=split == "leaves"), 1):
                    if number > count:
                        break
                    chosen = dict(settings)
                    config = configure(graph, chosen.pop("method"), 0, chosen)
                    run = fit(own, config.model, config.train, device="cpu")
                    objective = HierarchyCompletion(own, loss=config.train.loss or "ranking")  # type: ignore[arg-type]
                    listed = listed_in_order(objective, run.model.eval()) if split == "closure" else float("nan")
                    found.append((run.record.validation or 0.0, -number, listed, run.evaluate(), settings))
                _, number, listed, test, settings = max(found, key=lambda one: one[:2])
                figures = [f"{test[name]:.1f}" for name in ("mrr", "order", "parent_first", "ordered_mrr")]
                what = f"{-number} ({settings['model']}, {settings.get('loss', 'ranking')})"
                figures += [f"{listed:.1f}"] if split == "closure" else []
                print(f"| {root} | {rule} | {what} | {' | '.join(figures)} |", flush=True)
                if split == "closure":
                    rho = spearmanr([one[0] for one in found], [one[2] for one in found]).statistic
                    print(f"  rank correlation of {rule} and the share listed in order, {count} trials: {rho:.2f}")


if __name__ == "__main__":
    main()
