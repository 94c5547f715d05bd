"""What we think of the paper's clock, in words: printed by ``lresnet bench residual --explain`` and by the docs."""

__all__ = ["PAPER_CLOCK"]

PAPER_CLOCK = """\
The paper reports that the Lorentz residual is over 2,000 times faster than parallel transport: 0.0006 s against 1.448
s for 100 additions of 100,000 points of dimension 4,096. An addition has to read x and y and write z, in float32 4.9
GB; 100 of them in 0.0006 s would be 820 TB/s, some 1,800 times what the memory of the card used (448 GB/s) can
deliver. No formula can change that, since every method reads the same x and y: on that card 100 additions cannot take
less than 1.1 s.

A likely explanation is that the GPU was not waited for. A call in Python hands work to the GPU and returns; a clock
read then has timed the handing in. Six microseconds an addition is what launching a kernel takes, and the time hardly
depends on the size, as it does not in the paper: 20 times the bytes took 2.4 times as long. The methods with more
kernels fill the queue, which holds about a thousand; from then on every launch waits for a kernel to end, and the
same clock begins to show the truth. That would make the slower methods look right and the fastest one look free. The
table of the two clocks shows this for the loop of 100 additions here. We cannot know what was run; anyone can fall
into this, and one `torch.cuda.synchronize()` before each reading of the clock prevents it.

What is true: the Lorentz residual needs no exponential, no logarithm and no second trip over memory. Fused into one
kernel it costs forward about what x + y costs; the textbook's parallel transport, a chain of kernels, costs many times
that. Parallel transport in closed form, fused likewise, also costs about what x + y costs: the advantage is one of
writing, not of the formula. Nor need the kernel be ours: where torch.compile fuses the formulas as well as we do, it
comes as near to the memory's rate. Backward, x + y is free and every other residual is not: its gradient reads three
tensors and writes two."""
