"""Names in code on tensors, by what they reveal about the origin of values."""

# fmt: off
__all__ = [
    "ALL_LAYERS", "CONTAINER_METHODS", "COPIES", "DOUBTFUL", "FACTS", "FUNCTIONAL_LAYERS", "ITERATORS",
    "LAYOUT", "SHORTCUTS", "SHORTCUT_NAMES", "TURNS", "VIEWS",
]

# A layer with such a word in its name is a shortcut where both sides of a sum are layers; the last one is also said of
# a branch.
SHORTCUTS = ("downsample", "shortcut", "skip", "identity", "residual")
# So is one whose whole name this is.
SHORTCUT_NAMES = ("proj", "projection")
# Layers with such a word give a position, a mask or a bias rather than a branch; but who knows.
DOUBTFUL = ("pos_", "_pos", "position", "mask", "bias")
# What exchanges axes, and what else makes layers no longer tell where the channels are.
TURNS = frozenset({
    "permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims", "rearrange", "T", "mT", "einsum",
})
LAYOUT = TURNS | {"flatten", "unflatten", "view", "reshape"}
# What gives the same memory another shape.
VIEWS = LAYOUT | {
    "squeeze", "unsqueeze", "expand", "expand_as", "narrow", "select", "chunk", "split", "tensor_split",
    "unbind", "detach",
    "view_as", "reshape_as", "diagonal", "unfold", "contiguous",
}
# What gives the same numbers.
COPIES = frozenset({
    "clone", "contiguous", "to", "float", "double", "half", "bfloat16", "type", "type_as", "cpu", "cuda",
})
# What is asked of a tensor and tells nothing of its values; or makes a new one, perhaps of its shape.
FACTS = frozenset({
    "shape", "size", "dim", "ndim", "numel", "nelement", "stride", "dtype", "device", "requires_grad",
    "is_cuda", "is_nested",
    "item", "tolist", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "zeros_like", "ones_like",
    "full_like",
    "empty_like", "rand_like", "randn_like", "len", "isinstance", "hasattr", "type", "range", "int", "float",
    "bool", "str",
    "id", "print", "arange", "zeros", "ones", "full", "rand", "randn",
})
# Functions that are a layer if one of their arguments is a parameter of the module.
FUNCTIONAL_LAYERS = frozenset({
    "linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "matmul",
    "mm", "bmm", "einsum", "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm",
})
# What a loop over layers goes through.
ITERATORS = ("enumerate", "zip", "reversed", "list", "tuple", "iter")
ALL_LAYERS = ("values", "items", "children", "named_children")
# What puts a value into a list, say.
CONTAINER_METHODS = ("append", "extend", "insert", "add", "update", "setdefault", "appendleft")
