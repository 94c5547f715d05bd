"""The networks of benchmarks/convert_zoo.py: small configurations with random weights, built from PyPI packages.

``PACKAGES`` maps the name of a package to a function that imports it and returns ``{name: build}``. ``build()`` returns
the network, its positional inputs and its keyword inputs. Nothing is downloaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Built = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
Build = Callable[[], Built]


def image(size: int = 32, channels: int = 3, axes: int = 2) -> Tensor:
    return torch.randn(2, channels, *(size,) * axes)


def tokens(length: int = 12, words: int = 60) -> Tensor:
    return torch.randint(3, words, (2, length))


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape)


def case(make: Callable[..., nn.Module], *inputs: Callable[[], Any], **keyword_inputs: Callable[[], Any]) -> Build:
    """Return a builder; the inputs are made when the network is."""

    def build() -> Built:
        net = make()
        return net, tuple(one() for one in inputs), {name: one() for name, one in keyword_inputs.items()}

    return build


# timm: one small variant per family. The number is the image size; options shorten networks that have no small variant.
TIMM: dict[str, tuple[str, int, dict[str, Any]]] = {
    "beit": ("beit_base_patch16_224", 64, {"depth": 2, "embed_dim": 192, "num_heads": 3, "img_size": 64}),
    "byoanet": ("lambda_resnet26t", 64, {}),
    "byobnet": ("mobileone_s1", 64, {}),
    "cait": ("cait_xxs24_224", 64, {"depth": 4, "img_size": 64}),
    "coat": ("coat_tiny", 64, {"img_size": 64}),
    "convit": ("convit_tiny", 64, {"img_size": 64}),
    "convmixer": ("ConvMixer", 56, {"dim": 64, "depth": 6, "kernel_size": 5, "patch_size": 7}),
    "convnext": ("convnext_atto", 64, {}),
    "cpubone": ("cpubone_nano", 64, {}),
    "crossvit": ("crossvit_tiny_240", 120, {"img_size": 120}),
    "csatv2": ("csatv2", 64, {}),
    "cspnet": ("cs3darknet_focus_s", 64, {}),
    "cspnext": ("cspnext_tiny", 64, {}),
    "davit": ("davit_tiny", 64, {"depths": (1, 1, 1, 1), "embed_dims": (24, 48, 96, 192)}),
    "deepseek_vit": ("deepseek_vit_412m", 126, {"depth": 2, "embed_dim": 64, "num_heads": 4}),
    "deit": ("deit_tiny_patch16_224", 64, {"depth": 4, "img_size": 64}),
    "densenet": ("densenet121", 64, {}),
    "dla": ("dla46x_c", 64, {}),
    "dpn": ("dpn48b", 64, {}),
    "edgenext": ("edgenext_xx_small", 64, {}),
    "efficientformer": ("efficientformer_l1", 224, {}),
    "efficientformer_v2": ("efficientformerv2_s0", 224, {}),
    "efficientnet": ("efficientnet_b0", 64, {}),
    "efficientvim": ("efficientvim_m1", 128, {}),
    "efficientvit_mit": ("efficientvit_b0", 64, {}),
    "efficientvit_msra": ("efficientvit_m0", 224, {}),
    "eva": ("eva02_tiny_patch14_224", 56, {"depth": 4, "img_size": 56}),
    "fasternet": ("fasternet_t0", 64, {}),
    "fastvit": ("fastvit_t8", 64, {}),
    "focalnet": ("focalnet_tiny_srf", 64, {}),
    "gcvit": ("gcvit_xxtiny", 224, {}),
    "gemma4_vit": ("gemma4_vit_167m", 96, {"depth": 2, "embed_dim": 64, "num_heads": 4}),
    "ghostnet": ("ghostnet_050", 64, {}),
    "hardcorenas": ("hardcorenas_b", 64, {}),
    "hgnet": ("hgnetv2_b4", 64, {}),
    "hiera": ("hiera_tiny_224", 224, {"embed_dim": 32, "stages": (1, 1, 2, 1)}),
    "hieradet_sam2": ("sam2_hiera_tiny", 224, {"embed_dim": 32, "stages": (1, 1, 2, 1)}),
    "hrnet": ("hrnet_w18_small", 64, {}),
    "iformer": ("iformer_t", 64, {}),
    "inception_next": ("inception_next_atto", 64, {}),
    "inception_resnet_v2": ("inception_resnet_v2", 96, {}),
    "inception_v3": ("inception_v3", 96, {}),
    "inception_v4": ("inception_v4", 96, {}),
    "lcnetv2": ("lcnetv2_small", 64, {}),
    "levit": ("levit_128s", 224, {}),
    "lowformer": ("lowformer_b0", 64, {}),
    "mambaout": ("mambaout_femto", 64, {}),
    "maxxvit": ("maxvit_pico_rw_256", 64, {"img_size": 64}),
    "metaformer": ("caformer_s18", 64, {}),
    "mlp_mixer": ("mixer_s32_224", 64, {"img_size": 64}),
    "mobilenetv3": ("mobilenetv3_small_050", 64, {}),
    "mobilenetv5": ("mobilenetv5_base", 64, {}),
    "mobilevit": ("mobilevit_xxs", 64, {}),
    "mvitv2": ("mvitv2_tiny", 64, {"img_size": 64}),
    "naflexvit": ("naflexvit_base_patch16_gap", 64, {"depth": 2, "embed_dim": 64, "num_heads": 4}),
    "nasnet": ("nasnetalarge", 96, {}),
    "nest": ("nest_tiny", 64, {"img_size": 64}),
    "nextvit": ("nextvit_small", 64, {}),
    "nfnet": ("nf_regnet_b0", 64, {}),
    "pit": ("pit_ti_224", 224, {}),
    "pnasnet": ("pnasnet5large", 96, {}),
    "pvt_v2": ("pvt_v2_b0", 64, {}),
    "qwen3_vit": ("qwen3_vit_88m", 64, {"depth": 2, "embed_dim": 64, "num_heads": 4}),
    "rdnet": ("rdnet_tiny", 64, {}),
    "regnet": ("regnetx_002", 64, {}),
    "repghost": ("repghostnet_050", 64, {}),
    "repvit": ("repvit_m1", 64, {}),
    "res2net": ("res2net50_26w_4s", 64, {}),
    "resnest": ("resnest14d", 64, {}),
    "resnet": ("resnet18", 64, {}),
    "resnetv2": ("resnetv2_18", 64, {}),
    "rexnet": ("rexnet_100", 64, {}),
    "selecsls": ("selecsls42", 64, {}),
    "senet": ("legacy_seresnet18", 64, {}),
    "sequencer": ("sequencer2d_s", 64, {"img_size": 64, "layers": (1, 1, 2, 1)}),
    "shvit": ("shvit_s1", 128, {}),
    "sknet": ("skresnet18", 64, {}),
    "starnet": ("starnet_s050", 64, {}),
    "swiftformer": ("swiftformer_xs", 224, {}),
    "swin_transformer": ("swin_tiny_patch4_window7_224", 224, {"embed_dim": 24, "depths": (2, 2, 2, 2)}),
    "swin_transformer_v2": ("swinv2_tiny_window8_256", 64, {"img_size": 64, "embed_dim": 24, "window_size": 4}),
    "swin_transformer_v2_cr": ("swinv2_cr_tiny_224", 224, {"embed_dim": 24, "depths": (2, 2, 2, 2)}),
    "tiny_vit": ("tiny_vit_5m_224", 64, {}),
    "tnt": ("tnt_s_legacy_patch16_224", 64, {"img_size": 64, "depth": 2}),
    "tresnet": ("tresnet_m", 64, {}),
    "twins": ("twins_svt_small", 64, {"img_size": 64}),
    "vgg": ("vgg11_bn", 32, {}),
    "visformer": ("visformer_tiny", 64, {"img_size": 64}),
    "vision_transformer": ("vit_tiny_patch16_224", 64, {"depth": 4, "img_size": 64}),
    "vision_transformer_hybrid": ("vit_tiny_r_s16_p8_224", 64, {"depth": 4, "img_size": 64}),
    "vision_transformer_relpos": ("vit_srelpos_small_patch16_224", 64, {"depth": 4, "img_size": 64}),
    "vision_transformer_sam": ("samvit_base_patch16_224", 64, {"depth": 3, "embed_dim": 96, "img_size": 64}),
    "vitamin": ("vitamin_small_224", 64, {"img_size": 64}),
    "volo": ("volo_d1_224", 64, {"img_size": 64}),
    "vovnet": ("ese_vovnet19b_dw", 64, {}),
    "xception": ("legacy_xception", 96, {}),
    "xception_aligned": ("xception41p", 64, {}),
    "xcit": ("xcit_nano_12_p8_224", 64, {"img_size": 64}),
}


def timm_models() -> dict[str, Build]:
    import timm
    import timm.models.convmixer

    def build(name: str, options: dict[str, Any]) -> nn.Module:
        if name == "ConvMixer":  # create_model does not take its depth
            return timm.models.convmixer.ConvMixer(num_classes=10, **options)
        return timm.create_model(name, pretrained=False, num_classes=10, **options)

    return {
        f"{family}: {name}": case(functools.partial(build, name, options), functools.partial(image, size))
        for family, (name, size, options) in TIMM.items()
    }


def hugging_face_models() -> dict[str, Build]:
    from transformers import AutoConfig, AutoModel

    text = {"vocab_size": 64, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    two = {"num_hidden_layers": 2, "max_position_embeddings": 64}
    picture = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    picture |= {"image_size": 32, "patch_size": 8}
    seq2seq = {"vocab_size": 64, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
    seq2seq |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    t5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    audio = {**picture, "conv_dim": (16, 16), "conv_stride": (5, 4), "conv_kernel": (10, 4)}
    audio |= {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2}
    stages = {"depths": [1, 1], "hidden_sizes": [16, 32], "num_stages": 2}
    kv = {"num_key_value_heads": 2, "pad_token_id": 0}

    def ids(kind: str, **sizes: Any) -> Build:
        return hf(kind, {"input_ids": tokens}, sizes)

    def pixels(kind: str, size: int = 32, **sizes: Any) -> Build:
        return hf(kind, {"pixel_values": functools.partial(image, size)}, sizes)

    def pair(kind: str, **sizes: Any) -> Build:
        return hf(kind, {"input_ids": tokens, "decoder_input_ids": functools.partial(tokens, 7)}, sizes)

    def hf(kind: str, inputs: dict[str, Callable[[], Any]], sizes: dict[str, Any]) -> Build:
        def make() -> nn.Module:
            config = AutoConfig.for_model(kind, **sizes)
            config.use_cache = False
            config.architectures = config.architectures or []
            config._experts_implementation = "eager"  # the grouped product of Mixtral has no float64
            return AutoModel.from_config(config)

        return case(make, **inputs)

    wave = {"input_values": lambda: rows(2, 800)}
    clip_parts = {"text_config": {**text, **two, "eos_token_id": 2}, "vision_config": picture}
    return {
        "bert": ids("bert", **text, **two),
        "roberta": ids("roberta", **text, **two),
        "distilbert": ids("distilbert", vocab_size=64, dim=32, n_layers=2, n_heads=4, hidden_dim=48),
        "albert": ids("albert", **text, **two, embedding_size=16),
        "electra": ids("electra", **text, **two, embedding_size=16),
        "deberta-v2": ids("deberta-v2", **text, **two, relative_attention=True, pos_att_type=["p2c", "c2p"]),
        "mpnet": ids("mpnet", **text, **two),
        "modernbert": ids("modernbert", **text, **two, pad_token_id=0),
        "gpt2": ids("gpt2", vocab_size=64, n_embd=32, n_layer=2, n_head=4),
        "gptj": ids("gptj", vocab_size=64, n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
        "gpt_neo": ids("gpt_neo", vocab_size=64, hidden_size=32, num_layers=2, num_heads=4,
                       attention_types=[[["global", "local"], 1]]),
        "gpt_neox (parallel)": ids("gpt_neox", **text, **two, use_parallel_residual=True),
        "gpt_neox (sequential)": ids("gpt_neox", **text, **two, use_parallel_residual=False),
        "opt": ids("opt", vocab_size=64, hidden_size=32, word_embed_proj_dim=32, num_hidden_layers=2, ffn_dim=48,
                   num_attention_heads=4, max_position_embeddings=64),
        "bloom": ids("bloom", vocab_size=64, hidden_size=32, n_layer=2, n_head=4),
        "falcon": ids("falcon", vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                      parallel_attn=True, new_decoder_architecture=False),
        "falcon (sequential)": ids("falcon", vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                   parallel_attn=False, new_decoder_architecture=False),
        "llama": ids("llama", **text, **two, **kv),
        "mistral": ids("mistral", **text, **two, **kv),
        "qwen2": ids("qwen2", **text, **two, **kv),
        "gemma2": ids("gemma2", **text, **two, **kv, head_dim=8),
        "phi": ids("phi", **text, **two, **kv),
        "mixtral": ids("mixtral", **text, **two, **kv, num_local_experts=2, num_experts_per_tok=1),
        "mamba": ids("mamba", vocab_size=64, hidden_size=32, state_size=4, num_hidden_layers=2),
        "rwkv": ids("rwkv", vocab_size=64, hidden_size=32, num_hidden_layers=2, attention_hidden_size=32,
                    intermediate_size=48, context_length=64),
        "funnel": ids("funnel", vocab_size=64, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=48),
        "t5": pair("t5", **t5),
        "mt5": pair("mt5", **t5),
        "bart": pair("bart", **seq2seq, max_position_embeddings=64),
        "pegasus": pair("pegasus", **seq2seq, max_position_embeddings=64),
        "whisper": hf("whisper", {"input_features": lambda: rows(2, 8, 32), "decoder_input_ids": tokens},
                      {**seq2seq, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16,
                       "pad_token_id": 0, "decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2}),
        "wav2vec2": hf("wav2vec2", wave, audio),
        "hubert (stable layer norm)": hf("hubert", wave, {**audio, "do_stable_layer_norm": True,
                                                          "feat_extract_norm": "layer"}),
        "vit": pixels("vit", **picture),
        "deit": pixels("deit", **picture),
        "dinov2": pixels("dinov2", **picture),
        "beit": pixels("beit", **picture),
        "swin": pixels("swin", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4],
                       window_size=4),
        "convnext": pixels("convnext", **stages),
        "resnet": pixels("resnet", depths=[2, 1], hidden_sizes=[16, 32], embedding_size=16, layer_type="basic"),
        "segformer": pixels("segformer", 64, depths=[1, 1], num_encoder_blocks=2, hidden_sizes=[16, 32],
                            sr_ratios=[4, 2], patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2],
                            mlp_ratios=[2, 2]),
        "poolformer": pixels("poolformer", 64, depths=[1, 1], num_encoder_blocks=2, hidden_sizes=[16, 32],
                             patch_sizes=[7, 3], strides=[4, 2], padding=[2, 1]),
        "mobilenet_v2": pixels("mobilenet_v2", 64, depth_multiplier=0.35),
        "clip": hf("clip", {"input_ids": tokens, "pixel_values": image}, clip_parts),
        "siglip": hf("siglip", {"input_ids": tokens, "pixel_values": image}, clip_parts),
    }  # fmt: skip


def graph() -> Tensor:
    return torch.stack([torch.arange(24) % 12, (torch.arange(24) * 5 + 1) % 12])


def pyg_models() -> dict[str, Build]:
    import torch_geometric.nn as g

    class Layers(nn.Module):
        """Graph layers one after the other, with the arguments that each of them takes."""

        def __init__(self, *layers: nn.Module, initial: bool = False) -> None:
            super().__init__()
            self.layers, self.initial = nn.ModuleList(layers), initial

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            first = x
            for layer in self.layers:
                x = layer(x, first, edge_index) if self.initial else layer(x, edge_index)
            return x

    def deep(block: str) -> nn.Module:
        return Layers(*(g.DeepGCNLayer(g.GCNConv(16, 16), nn.LayerNorm(16), nn.ReLU(), block) for _ in range(3)))

    def schnet() -> nn.Module:
        def near(pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
            pairs = torch.combinations(torch.arange(len(pos))).t()
            return pairs, (pos[pairs[0]] - pos[pairs[1]]).norm(dim=-1)

        return g.SchNet(16, 16, 2, 8, interaction_graph=near)

    features, edges = functools.partial(rows, 12, 16), graph

    def net(make: Callable[[], nn.Module]) -> Build:
        return case(make, features, edges)

    def gps() -> nn.Module:
        return Layers(*(g.GPSConv(16, g.GCNConv(16, 16), heads=2, dropout=0.0) for _ in range(2)))

    return {
        "DeepGCNLayer (res+)": net(lambda: deep("res+")),
        "DeepGCNLayer (res)": net(lambda: deep("res")),
        "DeepGCNLayer (plain)": net(lambda: deep("plain")),
        "GCN2Conv": net(lambda: Layers(*(g.GCN2Conv(16, 0.5, 1.0, i + 1) for i in range(3)), initial=True)),
        "GPSConv": net(gps),
        "GCN": net(lambda: g.GCN(16, 16, 3)),
        "GraphSAGE": net(lambda: g.GraphSAGE(16, 16, 3)),
        "GIN": net(lambda: g.GIN(16, 16, 3)),
        "GAT": net(lambda: g.GAT(16, 16, 2, heads=2)),
        "GAT (residual)": net(lambda: Layers(*(g.GATConv(16, 16, residual=True) for _ in range(2)))),
        "TransformerConv": net(lambda: Layers(*(g.TransformerConv(16, 16) for _ in range(2)))),
        "TransformerConv (beta)": net(lambda: Layers(*(g.TransformerConv(16, 16, beta=True) for _ in range(2)))),
        "ResGatedGraphConv": net(lambda: Layers(*(g.ResGatedGraphConv(16, 16) for _ in range(2)))),
        "AntiSymmetricConv": net(lambda: Layers(*(g.AntiSymmetricConv(16) for _ in range(2)))),
        "APPNP": net(lambda: Layers(g.APPNP(3, 0.1))),
        "GraphUNet": net(lambda: g.GraphUNet(16, 16, 16, 2, 0.5)),
        "LINKX": case(lambda: g.LINKX(12, 16, 16, 4, 2), features, edges),
        "PMLP": net(lambda: g.PMLP(16, 16, 4, 3).eval()),
        "SGFormer": case(lambda: g.SGFormer(16, 16, 4, trans_num_heads=2), features, edges,
                         lambda: torch.zeros(12, dtype=torch.long)),
        "SchNet": case(schnet, lambda: torch.randint(1, 9, (8,)), lambda: rows(8, 3)),
        "GroupAddRev": net(lambda: Layers(g.GroupAddRev(g.GCNConv(8, 8), num_groups=2))),
    }  # fmt: skip


def torch_models() -> dict[str, Build]:
    sequence = functools.partial(rows, 2, 10, 16)

    def encoder(norm_first: bool) -> nn.Module:
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def decoder() -> nn.Module:
        return nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32, batch_first=True, norm_first=True), 2)

    def whole() -> nn.Module:
        return nn.Transformer(16, 4, 2, 2, 32, batch_first=True, norm_first=True)

    return {
        "TransformerEncoder (pre-norm)": case(lambda: encoder(True), sequence),
        "TransformerEncoder (post-norm)": case(lambda: encoder(False), sequence),
        "TransformerDecoder": case(decoder, sequence, sequence),
        "Transformer": case(whole, sequence, sequence),
    }


def torchvision_models() -> dict[str, Build]:
    from torchvision import models as m

    picture = functools.partial(image, 64)

    def net(make: Callable[..., nn.Module], size: int = 64, **options: Any) -> Build:
        return case(functools.partial(make, weights=None, num_classes=10, **options), functools.partial(image, size))

    def vit() -> nn.Module:
        return m.VisionTransformer(64, 16, 2, 4, 32, 64, num_classes=10)

    def swin() -> nn.Module:
        return m.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10)

    def maxvit() -> nn.Module:
        return m.MaxVit((64, 64), 16, 4, [16, 32], [1, 1], 8, 0.0, num_classes=10)

    def video(make: Callable[..., nn.Module]) -> Build:
        return case(functools.partial(make, weights=None, num_classes=10), lambda: image(32, 3, 3)[:, :, :8])

    return {
        "resnet18": net(m.resnet18),
        "resnet50": net(m.resnet50),
        "resnext50_32x4d": net(m.resnext50_32x4d),
        "mobilenet_v2": net(m.mobilenet_v2),
        "mobilenet_v3_small": net(m.mobilenet_v3_small),
        "efficientnet_b0": net(m.efficientnet_b0),
        "efficientnet_v2_s": net(m.efficientnet_v2_s),
        "regnet_y_400mf": net(m.regnet_y_400mf),
        "convnext_tiny": net(m.convnext_tiny),
        "vit (2 layers)": case(vit, picture),
        "swin (2 + 2 layers)": case(swin, picture),
        "maxvit (2 blocks)": case(maxvit, picture),
        "mnasnet0_5": net(m.mnasnet0_5),
        "shufflenet_v2_x0_5": net(m.shufflenet_v2_x0_5),
        "squeezenet1_1": net(m.squeezenet1_1),
        "densenet121": net(m.densenet121),
        "googlenet": net(m.googlenet, aux_logits=False, init_weights=False),
        "deeplabv3_resnet50": net(m.segmentation.deeplabv3_resnet50, weights_backbone=None),
        "r3d_18": video(m.video.r3d_18),
        "raft_small": case(lambda: m.optical_flow.raft_small(weights=None), lambda: image(128), lambda: image(128)),
    }


def x_transformers_models() -> dict[str, Build]:
    import x_transformers as x

    def text(layers: Callable[..., nn.Module] = x.Decoder, **options: Any) -> Build:
        def make() -> nn.Module:
            attention = layers(dim=32, depth=2, heads=2, attn_dim_head=16, **options)
            return x.TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=attention)

        return case(make, tokens)

    def picture() -> nn.Module:
        layers = x.Encoder(dim=32, depth=2, heads=2, attn_dim_head=16)
        return x.ViTransformerWrapper(image_size=32, patch_size=8, num_classes=10, attn_layers=layers)

    def numbers() -> nn.Module:
        layers = x.Encoder(dim=32, depth=2, heads=2, attn_dim_head=16)
        return x.ContinuousTransformerWrapper(dim_in=8, dim_out=8, max_seq_len=32, attn_layers=layers)

    return {
        "Decoder": text(),
        "Decoder (rotary, SwiGLU, RMSNorm)": text(rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True),
        "Encoder": text(x.Encoder),
        "Encoder (post-norm)": text(x.Encoder, pre_norm=False),
        "Decoder (macaron)": text(macaron=True),
        "Decoder (gated residual)": text(gate_residual=True),
        "Decoder (scaled residual)": text(scale_residual=True),
        "ViTransformerWrapper": case(picture, image),
        "ContinuousTransformerWrapper": case(numbers, lambda: rows(2, 12, 8)),
    }


def segmentation_models() -> dict[str, Build]:
    import segmentation_models_pytorch as smp

    def net(make: Callable[..., nn.Module], encoder: str = "resnet18", size: int = 64, **options: Any) -> Build:
        whole = functools.partial(make, encoder_name=encoder, encoder_weights=None, classes=3, **options)
        return case(whole, functools.partial(image, size))

    return {
        "Unet (resnet18)": net(smp.Unet),
        "Unet (mobilenet_v2)": net(smp.Unet, "mobilenet_v2"),
        "UnetPlusPlus": net(smp.UnetPlusPlus),
        "Linknet": net(smp.Linknet),
        "FPN": net(smp.FPN),
        "PSPNet": net(smp.PSPNet),
        "MAnet": net(smp.MAnet),
        "DeepLabV3Plus": net(smp.DeepLabV3Plus),
        "PAN": net(smp.PAN, size=128),
        "UPerNet": net(smp.UPerNet),
        "Segformer (mit_b0)": net(smp.Segformer, "mit_b0"),
    }


def monai_models() -> dict[str, Build]:
    from monai.networks import nets

    steps = {"channels": (8, 16, 32), "strides": (2, 2)}
    flat = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
    small = {"img_size": 32, "feature_size": 8, "hidden_size": 32, "mlp_dim": 48, "num_heads": 4}
    diffusion = {"num_res_blocks": 1, "channels": (8, 16), "attention_levels": (False, True), "norm_num_groups": 4}
    dyn = {"kernel_size": [3, 3, 3], "strides": [1, 2, 2], "upsample_kernel_size": [2, 2], "res_block": True}

    def net(make: Callable[..., nn.Module], size: int = 32, axes: int = 2, **options: Any) -> Build:
        return case(functools.partial(make, **options), functools.partial(image, size, 1, axes))

    def step() -> nn.Module:
        return nets.DiffusionModelUNet(2, 1, 1, **diffusion, num_head_channels=4)

    return {
        "UNet": net(nets.UNet, **flat, **steps, num_res_units=2),
        "UNet (3D)": net(nets.UNet, 16, 3, **{**flat, "spatial_dims": 3}, **steps, num_res_units=2),
        "UNet (plain)": net(nets.UNet, **flat, **steps),
        "BasicUNet": net(nets.BasicUNet, **flat, features=(8, 8, 16, 16, 16, 8)),
        "AttentionUnet": net(nets.AttentionUnet, **flat, **steps),
        "SegResNet": net(nets.SegResNet, **flat, init_filters=8),
        "DynUNet": net(nets.DynUNet, **flat, **dyn),
        "VNet": net(nets.VNet, 16, 3),
        "HighResNet": net(nets.HighResNet, 16, **flat),
        "UNETR": net(nets.UNETR, in_channels=1, out_channels=2, spatial_dims=2, **small),
        "SwinUNETR": net(nets.SwinUNETR, 64, **flat, feature_size=12),
        "ViT": net(nets.ViT, in_channels=1, img_size=(32, 32), patch_size=(8, 8), hidden_size=32, mlp_dim=48,
                   num_layers=2, num_heads=4, spatial_dims=2, classification=True),
        "resnet10": net(nets.resnet10, 16, 3, spatial_dims=3, n_input_channels=1, num_classes=3),
        "SEResNet50": net(nets.SEResNet50, 32, spatial_dims=2, in_channels=1, num_classes=3),
        "DiffusionModelUNet": case(step, functools.partial(image, 16, 1), lambda: torch.tensor([3, 5])),
        "AutoencoderKL": net(nets.AutoencoderKL, 16, spatial_dims=2, in_channels=1, out_channels=1, channels=(8, 16),
                             attention_levels=(False, True), num_res_blocks=(1, 1), latent_channels=2,
                             norm_num_groups=4),
    }  # fmt: skip


def diffusers_models() -> dict[str, Build]:
    import diffusers as d

    t = functools.partial(torch.tensor, [3, 5])
    latent = functools.partial(image, 16, 4)
    two = {"sample_size": 16, "block_out_channels": (16, 32), "norm_num_groups": 4, "layers_per_block": 1}
    caption = functools.partial(rows, 2, 5, 16)
    dit = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2, "sample_size": 8, "patch_size": 2}

    def unet() -> nn.Module:
        down, up = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
        return d.UNet2DModel(in_channels=4, out_channels=4, down_block_types=down, up_block_types=up,
                             attention_head_dim=8, **two)  # fmt: skip

    def conditional() -> nn.Module:
        down, up = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
        return d.UNet2DConditionModel(down_block_types=down, up_block_types=up, cross_attention_dim=16,
                                      attention_head_dim=8, **two)  # fmt: skip

    def autoencoder() -> nn.Module:
        down, up = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
        return d.AutoencoderKL(3, 3, down, up, **two)

    def flux() -> nn.Module:
        return d.FluxTransformer2DModel(1, 4, num_layers=1, num_single_layers=1, attention_head_dim=16,
                                        num_attention_heads=2, joint_attention_dim=16, pooled_projection_dim=16,
                                        axes_dims_rope=(4, 4, 8))  # fmt: skip

    def sd3() -> nn.Module:
        return d.SD3Transformer2DModel(16, 2, 4, 2, 8, 2, joint_attention_dim=16, caption_projection_dim=16,
                                       pooled_projection_dim=16, out_channels=4)  # fmt: skip

    labels = functools.partial(torch.tensor, [1, 2])
    places = {"img_ids": lambda: torch.zeros(16, 3), "txt_ids": lambda: torch.zeros(5, 3)}
    pixart = {"in_channels": 4, "out_channels": 4, "cross_attention_dim": 16, "caption_channels": 16}
    return {
        "UNet2DModel": case(unet, latent, t),
        "UNet2DConditionModel": case(conditional, latent, t, caption),
        "AutoencoderKL": case(autoencoder, image),
        "DiTTransformer2DModel": case(lambda: d.DiTTransformer2DModel(**dit, norm_num_groups=4),
                                      functools.partial(image, 8, 4), timestep=t, class_labels=labels),
        "PixArtTransformer2DModel": case(lambda: d.PixArtTransformer2DModel(**dit, **pixart, norm_num_groups=4),
                                         functools.partial(image, 8, 4), caption, timestep=t,
                                         added_cond_kwargs=lambda: {"resolution": None, "aspect_ratio": None}),
        "FluxTransformer2DModel": case(flux, functools.partial(rows, 2, 16, 4), caption,
                                       functools.partial(rows, 2, 16), functools.partial(torch.tensor, [0.3, 0.5]),
                                       **places),
        "SD3Transformer2DModel": case(sd3, functools.partial(image, 16, 4), caption, functools.partial(rows, 2, 16), t),
    }  # fmt: skip


def vit_pytorch_models() -> dict[str, Build]:
    from importlib import import_module

    base = {"image_size": 32, "patch_size": 8, "num_classes": 10, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 48}

    def net(module: str, name: str, size: int = 32, **options: Any) -> Build:
        def make() -> nn.Module:
            return getattr(import_module(f"vit_pytorch.{module}"), name)(**options)

        return case(make, functools.partial(image, size))

    return {
        "ViT": net("vit", "ViT", **base),
        "SimpleViT": net("simple_vit", "SimpleViT", **base),
        "DeepViT": net("deepvit", "DeepViT", **base),
        "CaiT": net("cait", "CaiT", **base, cls_depth=1),
        "ParallelViT": net("parallel_vit", "ViT", **base, num_parallel_branches=2),
        "ViT for small data sets": net("vit_for_small_dataset", "ViT", **base),
        "CvT": net("cvt", "CvT", 64, num_classes=10, s1_emb_dim=16, s2_emb_dim=24, s3_emb_dim=32, s3_depth=2),
        "NesT": net("nest", "NesT", 32, image_size=32, patch_size=4, dim=16, heads=2, num_hierarchies=2,
                    block_repeats=(1, 1), num_classes=10),
        "MobileViT": net("mobile_vit", "MobileViT", 64, image_size=(64, 64), dims=[16, 24, 32], num_classes=10,
                         channels=[8, 8, 16, 16, 16, 16, 24, 24, 32, 32, 48]),
        "MaxViT": net("max_vit", "MaxViT", 64, num_classes=10, dim=16, depth=(1, 1), window_size=4, dim_head=8),
        "CrossFormer": net("crossformer", "CrossFormer", 64, num_classes=10, dim=(32, 32, 64, 64), depth=(1, 1, 1, 1),
                           local_window_size=2, global_window_size=(4, 2, 2, 1)),
        "TwinsSVT": net("twins_svt", "TwinsSVT", 224, num_classes=10, s1_emb_dim=16, s2_emb_dim=16, s3_emb_dim=32,
                        s4_emb_dim=32, s3_depth=1, s4_depth=1),
        "LeViT": net("levit", "LeViT", 64, image_size=64, num_classes=10, stages=2, dim=(32, 48), depth=1,
                     heads=(2, 2), mlp_mult=2),
        "CCT": net("cct", "CCT", 32, img_size=(32, 32), embedding_dim=32, n_conv_layers=2, num_layers=2, num_heads=2,
                   mlp_ratio=2.0, num_classes=10),
        "XCiT": net("xcit", "XCiT", 32, **base, cls_depth=1),
    }  # fmt: skip


def other_models() -> dict[str, Build]:
    """Single networks of further packages; each is imported when it is built."""
    from importlib import import_module

    def net(module: str, name: str, *inputs: Callable[[], Any], **options: Any) -> Build:
        return case(lambda: getattr(import_module(module), name)(**options), *inputs)

    sequence = functools.partial(rows, 2, 16, 32)
    words = functools.partial(tokens, 16)
    steps = functools.partial(torch.tensor, [3, 5])
    vision = {"image_size": 32, "layers": 2, "width": 32, "patch_size": 8, "head_width": 16}
    speech = {"context_length": 12, "vocab_size": 64, "width": 32, "heads": 2, "layers": 2}

    def open_clip() -> nn.Module:
        return import_module("open_clip").CLIP(16, vision, speech)

    return {
        "denoising_diffusion_pytorch Unet": net("denoising_diffusion_pytorch", "Unet", image, steps, dim=16,
                                                dim_mults=(1, 2), attn_dim_head=8, attn_heads=2),
        "denoising_diffusion_pytorch Unet1D": net("denoising_diffusion_pytorch", "Unet1D",
                                                  functools.partial(image, 32, 3, 1), steps, dim=16, dim_mults=(1, 2),
                                                  channels=3),
        "open_clip CLIP": case(open_clip, image, tokens),
        "conformer Conformer": net("conformer", "Conformer", sequence, dim=32, depth=2, dim_head=16, heads=2),
        "local_attention LocalTransformer": net("local_attention", "LocalTransformer", words, num_tokens=64, dim=32,
                                                depth=2, heads=2, dim_head=16, max_seq_len=32,
                                                local_attn_window_size=8),
        "performer_pytorch Performer": net("performer_pytorch", "Performer", sequence, dim=32, depth=2, heads=2,
                                           dim_head=16),
        "reformer_pytorch Reformer": net("reformer_pytorch", "Reformer", functools.partial(rows, 2, 32, 32), dim=32,
                                         depth=2, heads=2, bucket_size=8, lsh_dropout=0.0),
        "perceiver_pytorch Perceiver": net("perceiver_pytorch", "Perceiver", lambda: rows(2, 8, 8, 3),
                                           num_freq_bands=2, max_freq=4.0, depth=2, num_latents=8, latent_dim=16,
                                           latent_heads=2, num_classes=10, cross_dim_head=8, latent_dim_head=8),
        "mlp_mixer_pytorch MLPMixer": net("mlp_mixer_pytorch", "MLPMixer", image, image_size=32, channels=3,
                                          patch_size=8, dim=32, depth=2, num_classes=10),
        "g_mlp_pytorch gMLP": net("g_mlp_pytorch", "gMLP", words, num_tokens=64, dim=32, depth=2, seq_len=16),
        "linformer Linformer": net("linformer", "Linformer", sequence, dim=32, seq_len=16, depth=2, heads=2, k=8),
        "efficientnet_pytorch EfficientNet": case(lambda: import_module("efficientnet_pytorch").EfficientNet.from_name(
            "efficientnet-b0", num_classes=10), functools.partial(image, 64)),
        "resnest resnest50": net("resnest.torch", "resnest50", functools.partial(image, 64), num_classes=10),
    }  # fmt: skip


PACKAGES: dict[str, Callable[[], dict[str, Build]]] = {
    "torch": torch_models,
    "torch_geometric": pyg_models,
    "torchvision": torchvision_models,
    "timm": timm_models,
    "transformers": hugging_face_models,
    "x_transformers": x_transformers_models,
    "segmentation_models_pytorch": segmentation_models,
    "monai": monai_models,
    "diffusers": diffusers_models,
    "vit_pytorch": vit_pytorch_models,
    "others": other_models,
}
