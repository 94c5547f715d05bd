"""Attention of networks of the package transformers, built with random weights; skipped without the package."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import lresnet

transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
IDS = torch.randint(0, 50, (2, 6), generator=torch.Generator().manual_seed(0))
PADDING = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def gpt2() -> tuple[Any, dict[str, Any]]:
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=2, n_head=4, n_positions=16, attn_pdrop=0.0, attn_implementation="sdpa"
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": IDS, "attention_mask": PADDING}


def bert() -> tuple[Any, dict[str, Any]]:
    config = transformers.BertConfig(
        vocab_size=50, max_position_embeddings=16, attention_probs_dropout_prob=0.0, attn_implementation="sdpa", **SMALL
    )
    return transformers.BertModel(config), {"input_ids": IDS, "attention_mask": PADDING}


def vit() -> tuple[Any, dict[str, Any]]:
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, attention_probs_dropout_prob=0.0, attn_implementation="sdpa", **SMALL
    )
    return transformers.ViTForImageClassification(config), {"pixel_values": IMAGES}


def llama() -> tuple[Any, dict[str, Any]]:
    config = transformers.LlamaConfig(vocab_size=50, num_key_value_heads=2, attn_implementation="sdpa", **SMALL)
    return transformers.LlamaForCausalLM(config), {"input_ids": IDS, "attention_mask": PADDING}


def first(output: Any) -> torch.Tensor:
    return output[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [gpt2, bert, vit, llama])
def test_a_network_of_transformers_gets_lorentz_attention(make: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    flat, example = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = lresnet.lorentzify(flat, -0.1, example=example, attention="lorentz").eval()
        temperatures = [name for name, _ in net.named_parameters() if "temperature" in name]
        assert len(temperatures) == 2
        state = net.state_dict()
        assert all(torch.equal(state[name], own) for name, own in flat.state_dict().items())
        found = first(net(**example))
        assert found.isfinite().all()
        assert not torch.allclose(found, first(flat.eval()(**example)), rtol=1e-3)
        found.square().sum().backward()
        assert all(net.get_parameter(name).grad is not None for name in temperatures)
        read = lresnet.from_pretrained(net.save_pretrained(tmp_path / "net")).eval()
        torch.testing.assert_close(first(read(**example)), found)


@pytest.mark.parametrize("make", [gpt2, llama])
def test_generation_with_the_cache_of_transformers_equals_the_whole_forward(make: Any) -> None:
    torch.manual_seed(0)
    flat, _ = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = lresnet.lorentzify(flat, -0.1, example={"input_ids": IDS}, attention="lorentz").eval()
        with torch.no_grad():
            whole = net(IDS).logits
            start = net(IDS[:, :3], use_cache=True)
            rest = [start.logits]
            cache = start.past_key_values
            for place in range(3, 6):
                step = net(IDS[:, place : place + 1], past_key_values=cache, use_cache=True)
                cache = step.past_key_values
                rest.append(step.logits)
    torch.testing.assert_close(torch.cat(rest, 1), whole, atol=1e-5, rtol=1e-5)


def test_padded_prompts_of_grouped_heads_are_continued_as_without_a_cache() -> None:
    """transformers gives the heads that share keys as positions, if there are one position and a mask."""
    torch.manual_seed(0)
    flat, _ = llama()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = lresnet.lorentzify(flat, -0.1, example={"input_ids": IDS}, attention="lorentz").eval()
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                if "temperature" in name:  # heads that differ
                    parameter.copy_(torch.linspace(-1, 1, 4))
            padding = PADDING.flip(1)
            options = {"attention_mask": padding, "max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
            cached, whole = (
                net.generate(IDS, use_cache=use_cache, output_logits=True, return_dict_in_generate=True, **options)
                for use_cache in (True, False)
            )
    assert torch.equal(cached.sequences, whole.sequences)
    for first_logits, second in zip(cached.logits, whole.logits, strict=True):
        torch.testing.assert_close(first_logits, second, atol=1e-5, rtol=1e-5)


def test_eager_attention_is_refused_with_what_to_do() -> None:
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=1, n_head=4, n_positions=16, attn_implementation="eager"
    )
    with pytest.raises(ValueError, match="attn_implementation='sdpa'"):
        lresnet.lorentzify(transformers.GPT2LMHeadModel(config), example={"input_ids": IDS}, attention="lorentz")
