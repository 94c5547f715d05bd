"""Where there is no GPU the kernels' tests run in Triton's interpreter, chosen before anybody imports triton."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
