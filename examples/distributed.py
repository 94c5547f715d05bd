"""Several processes train one network: your own loop, PyTorch's DistributedDataParallel, Lorentz residuals.

    torchrun --nproc-per-node=2 examples/distributed.py

Two processes on two CPU cores, 300 steps, seed 0: after training, no parameter differs by more than 5.1e-15 from those
of one process on the same batches (float64; the tolerance is 1e-10). About 15 s of CPU time in all, torch 2.13.

Each process takes its share of every batch; DistributedDataParallel (DDP) averages the gradients, also those of the
residual weights and of the learned curvature. Process 0 then trains a copy of the network on whole batches alone. Both
end with the same parameters up to rounding, because the loss is a mean over the batch and the network has no
batch norm. Process 0 alone writes the checkpoint; all read it.

Processes use GPUs (NCCL) if there is one for each of them, otherwise the CPU (gloo). Two CPU processes were measured;
several GPUs were not. Without torchrun the script is one process. It needs no data: points on the hyperboloid are drawn
around eight random centres, and the network learns which centre a point belongs to.
"""

import argparse
import copy
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lresnet

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch-size", type=int, default=64, help="of all processes together")
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--out", type=Path, default=Path(), help="where the checkpoint goes")
options = parser.parse_args()

# 1. The processes. torchrun sets these variables.
rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
local_rank, on_machine = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
has_gpus = torch.cuda.device_count() >= on_machine
device = torch.device("cuda", local_rank) if has_gpus else torch.device("cpu")
if has_gpus:
    torch.cuda.set_device(device)
if size > 1:
    dist.init_process_group("nccl" if has_gpus else "gloo")
if options.batch_size % size:
    raise SystemExit(f"--batch-size {options.batch_size} is not a multiple of the number of processes, {size}")


# 2. The network. The manifold is one module, so its learned curvature is one parameter of the whole network.
class Network(torch.nn.Module):
    """Blocks x -> residual(x, relu(linear(x))) on points of the hyperboloid, then a hyperbolic classifier."""

    def __init__(self, width: int = 16, classes: int = 8) -> None:
        super().__init__()
        self.manifold = lresnet.Lorentz(curvature=-1.0, learnable=True)
        self.linear = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(options.layers))
        self.residual = torch.nn.ModuleList(lresnet.LorentzResidual(self.manifold) for _ in range(options.layers))
        self.head = lresnet.nn.LorentzMLR(width, classes, manifold=self.manifold)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for linear, residual in zip(self.linear, self.residual, strict=True):
            x = residual(x, torch.relu(linear(x)))
        return self.head(x)


# 3. The data: the same on every process, because they use the same seed.
generator = torch.Generator().manual_seed(0)
centres = torch.randn(8, 16, generator=generator, dtype=torch.float64)
labels = torch.randint(8, (2048,), generator=generator)
points = (centres[labels] + 0.5 * torch.randn(2048, 16, generator=generator, dtype=torch.float64)).to(device)
labels = labels.to(device)


def train(network: torch.nn.Module, share: slice) -> tuple[float, float]:
    """Train on the rows ``share`` of every batch; all callers draw the same batches. Return the first and last loss."""
    # lresnet.optim.make_adam is AdamW without weight decay on curvature, residual weights and scales.
    optimizer = lresnet.optim.make_adam(network, lr=0.01, weight_decay=1e-3)
    order = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(options.steps):
        batch = torch.randint(len(points), (options.batch_size,), generator=order)[share].to(device)
        loss = torch.nn.functional.cross_entropy(network(points[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


# 4. Train with all processes. DDP copies the parameters of process 0 to the others and averages gradients.
torch.manual_seed(rank)  # parameters may differ before DDP copies them
network = Network().double().to(device)
wrapped = DistributedDataParallel(network, device_ids=[local_rank] if has_gpus else None) if size > 1 else network
alone = copy.deepcopy(network)  # taken after DDP's copy of the parameters
own = options.batch_size // size
train(wrapped, slice(rank * own, (rank + 1) * own))

# 5. Process 0 writes the checkpoint, once. The others wait, then read it.
path = options.out / "distributed.pt"
if rank == 0:
    options.out.mkdir(parents=True, exist_ok=True)
    torch.save(network.state_dict(), path)  # of the network, not of DDP, whose names begin with "module."
if size > 1:
    dist.barrier()
restored = Network().double().to(device)
restored.load_state_dict(torch.load(path, map_location=device, weights_only=True))
pairs = zip(restored.parameters(), network.parameters(), strict=True)
holds = [all(torch.equal(a, b) for a, b in pairs)] * size
if size > 1:
    dist.all_gather_object(holds, holds[0])

# 6. Process 0 alone trains the copy on whole batches and compares.
if rank == 0:
    first, last = train(alone, slice(None))
    pairs = zip(network.state_dict().values(), alone.state_dict().values(), strict=True)
    difference = max(float((a - b).abs().max()) for a, b in pairs)
    weights = ", ".join(f"{residual.weight.item():.2f}" for residual in network.residual)
    plural = "process" if size == 1 else "processes"
    print(f"{size} {plural} on {device.type}, {options.steps} steps: loss {first:.3f} -> {last:.3f}")
    print(f"learned: K = {network.manifold.K.item():.3f}; residual weights {weights}")
    print(f"largest difference from one process on the same batches: {difference:.1e}")
    print(f"{path}: written by process 0, read back without change by {sum(holds)} of {size} {plural}")
    if difference > 1e-10:
        raise SystemExit("the difference is above the tolerance 1e-10")
    print("agrees within 1e-10")
if size > 1:
    dist.destroy_process_group()
