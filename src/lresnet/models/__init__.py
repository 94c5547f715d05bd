"""Models: networks by name (``create_model``), saved to and read from folders."""

from typing import TYPE_CHECKING

from lresnet._lazy import lazy_names
from lresnet.models.registry import MODELS, create_model, from_pretrained

if TYPE_CHECKING:
    from lresnet.models.embedding import LorentzNodeEmbedding
    from lresnet.models.gcn import LorentzGCN
    from lresnet.models.gcnii import LorentzGCNII
    from lresnet.models.gpt import LorentzGPT
    from lresnet.models.mlp import LorentzMLP
    from lresnet.models.pretrained import Pretrained
    from lresnet.models.resnet import LorentzResNet
    from lresnet.models.sage import LorentzSAGE
    from lresnet.models.sgformer import LorentzSGFormer
    from lresnet.models.vit import LorentzViT

__all__ = [
    "MODELS",
    "LorentzGCN",
    "LorentzGCNII",
    "LorentzGPT",
    "LorentzMLP",
    "LorentzNodeEmbedding",
    "LorentzResNet",
    "LorentzSAGE",
    "LorentzSGFormer",
    "LorentzViT",
    "Pretrained",
    "create_model",
    "from_pretrained",
]

if not TYPE_CHECKING:  # a type checker reads the imports above and reports a misspelt name
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "LorentzNodeEmbedding": "embedding",
            "LorentzGCN": "gcn",
            "LorentzGCNII": "gcnii",
            "LorentzGPT": "gpt",
            "LorentzMLP": "mlp",
            "LorentzResNet": "resnet",
            "LorentzSAGE": "sage",
            "LorentzSGFormer": "sgformer",
            "LorentzViT": "vit",
            "Pretrained": "pretrained",
        },
    )
