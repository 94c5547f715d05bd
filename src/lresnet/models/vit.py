"""lorentz_vit: vision transformers for images of any size, on the hyperboloid, with their Euclidean baseline."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.models.image_model import HEADS, POOLINGS, ImageModel, classifier, require_choice, require_images
from lresnet.models.transformer import Transformer
from lresnet.nn.embedding import LorentzPatchEmbedding
from lresnet.nn.inner_product_vectors import wide_dtype
from lresnet.nn.point_norm import LorentzRMSNorm
from lresnet.nn.rotary import RotaryPositions
from lresnet.nn.softmax_attention import Scores

__all__ = ["LorentzViT"]


class LorentzViT(Transformer, ImageModel):
    r"""Vision transformer of :class:`~lresnet.nn.LorentzTransformerBlock`; ``residual="euclidean"`` is its baseline.

    Patches of an image become points. The row and the column of a patch turn its queries and keys (rotary positions),
    so the network takes images of any size, including sizes that it was not trained on. The points after the last norm
    are pooled to one point for each image, which the head classifies.

    ``lorentz_vit_tiny`` has the defaults, 12 blocks of width 192 with 3 heads; ``lorentz_vit_small`` has the width 384
    and 6 heads. The baseline has about 1 % more parameters (:class:`LorentzGPT`).

    Args:
        layers: Number of blocks.
        width: Dimension n of the space.
        heads: Heads of attention. ``width / heads`` should be 64 on a GPU.
        num_classes: Number of logits.
        in_channels: Channels of the images.
        patch: Side of a patch in pixels.
        hidden: Width of the gated perceptrons. None: 8n/3, rounded up to a multiple of 32.
        residual, residual_options, curvature, learn_curvature, curvature_per_layer, scores: As for
            :class:`LorentzGPT`.
        pooling: "poincare", "centroid" or "mean". Default: "mean" for the Euclidean baseline, otherwise "centroid".
        head: "mlr", "prototypes" or "linear". Default: "linear" for the Euclidean baseline, otherwise "mlr".
        dropout: Dropout rate of the branches.
        precise: Compute attention in float32 also where the network runs in half precision, which is slower. It is for
            curvatures with :math:`-K |v|^2` above 2 (:func:`~lresnet.nn.lorentz_attention`).
        activation_checkpointing: Recompute the activations of each block in the backward pass, to save memory.

    Shapes:
        images [B, in_channels, H, W], any H and W -> logits [B, num_classes], float32 or wider

    Example:
        >>> model = LorentzViT(layers=2, width=64, heads=4)
        >>> model(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
        >>> model.features(torch.randn(2, 3, 30, 48)).shape
        torch.Size([2, 64, 8, 12])
    """

    model_name = "lorentz_vit"

    def __init__(
        self,
        layers: int = 12,
        width: int = 192,
        heads: int = 3,
        num_classes: int = 10,
        in_channels: int = 3,
        patch: int = 4,
        hidden: int | None = None,
        residual: str = "lorentz",
        residual_options: dict[str, Any] | None = None,
        curvature: float | None = None,
        learn_curvature: bool = False,
        curvature_per_layer: bool = False,
        scores: Scores | None = None,
        pooling: str | None = None,
        head: str | None = None,
        dropout: float = 0.0,
        precise: bool = False,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        for name, count in (("in_channels", in_channels), ("patch", patch)):
            if count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")
        is_baseline = residual == "euclidean"
        pooling = pooling or ("mean" if is_baseline else "centroid")
        head = head or ("linear" if is_baseline else "mlr")
        require_choice("pooling", pooling, POOLINGS)
        require_choice("head", head, HEADS)
        self._build(
            layers=layers,
            width=width,
            heads=heads,
            kv_heads=None,
            hidden=hidden,
            residual=residual,
            residual_options=residual_options,
            curvature=curvature,
            learn_curvature=learn_curvature,
            curvature_per_layer=curvature_per_layer,
            scores=scores,
            flat_head=pooling == "mean" and head == "linear",
            dropout=dropout,
            precise=precise,
            activation_checkpointing=activation_checkpointing,
        )
        self.in_channels, self.patch = in_channels, patch
        self.embedding = LorentzPatchEmbedding(in_channels, width, patch, manifold=self.manifold)
        self.rotary = RotaryPositions(
            self.layers[0].attention.query_features,  # type: ignore[union-attr, arg-type]
            base=100.0,  # an image has tens of rows, not thousands
            axes=2,
        )
        self.norm = LorentzRMSNorm(width, manifold=self.manifold)
        self.pool = POOLINGS[pooling](self.manifold)
        self.head = classifier(head, width, num_classes, self.manifold)

    def features(self, x: Tensor) -> Tensor:
        """Return the points of the patches before pooling, [B, width, ceil(H / patch), ceil(W / patch)]."""
        require_images(x, self.in_channels)
        points = self.embedding(x)
        rows, columns = points.shape[1:3]
        grid = torch.meshgrid(
            torch.arange(rows, device=x.device), torch.arange(columns, device=x.device), indexing="ij"
        )
        rotary = self.rotary(torch.stack(grid, -1).flatten(0, 1).to(wide_dtype(points.dtype)))
        points = self._run(points.flatten(1, 2), rotary, False, self.norm)
        return points.unflatten(1, (rows, columns)).movedim(-1, 1)  # type: ignore[no-any-return]
