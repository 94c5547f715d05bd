"""Where there is no GPU the kernels' tests run in Triton's interpreter, chosen before anybody imports triton."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# float32 is compared as float32: TF32, torch's default for convolutions on GPUs, keeps ten bits of a number.
torch.backends.cudnn.allow_tf32 = False
