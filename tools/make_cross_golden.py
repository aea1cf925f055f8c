"""Write tests/golden/bart.npz: a tiny random BART, and what Hugging Face transformers makes of it.

    python tools/make_cross_golden.py      needs torch and transformers (pip install ".[dev]")

The file holds the model's weights under their own names and, for three texts of different lengths:
the encoder's states, the decoder's logits of a given beginning, and 24 greedy tokens, all by
recomputation without a cache, one text at a time. Seeds are tried in order until every greedy token
wins by more than 0.001, so that rounding changes none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import transformers

OUT = Path(__file__).resolve().parents[1] / "tests" / "golden" / "bart.npz"
TEXTS, START, NEW, LEAD, DISTINCT = (1, 9, 14), 2, 24, 1e-3, 10
BEGINNING = 5  # tokens of the decoder whose logits are stored


def random_bart(seed: int) -> transformers.BartForConditionalGeneration:
    config = transformers.BartConfig(
        vocab_size=48,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=32,
        activation_function="gelu",
        attn_implementation="eager",
    )
    torch.manual_seed(seed)
    model = transformers.BartForConditionalGeneration(config).eval()
    with torch.no_grad():  # scales at which attention and positions matter, and biases are not 0
        for name, x in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                x.copy_(1 + 0.2 * torch.randn_like(x))
            elif name.endswith("bias"):
                x.normal_(0, 0.2)
            elif "q_proj" in name or "k_proj" in name:
                x.normal_(0, 0.5)
            else:
                x.normal_(0, 0.3)
    return model


def answer(
    model: transformers.BartForConditionalGeneration, text: list[int], given: list[int], new: int
) -> tuple[np.ndarray, np.ndarray, list[int], float]:
    """Encoder states (S, d), logits (T, V) of the given tokens, greedy tokens, smallest lead."""
    ids, tokens, lead = torch.tensor([text]), [START], np.inf
    with torch.no_grad():
        states = model.model.encoder(input_ids=ids).last_hidden_state[0].numpy()
        whole = model(input_ids=ids, decoder_input_ids=torch.tensor([given]), use_cache=False)
        for _ in range(new):
            last = torch.tensor([tokens])
            logits = model(input_ids=ids, decoder_input_ids=last, use_cache=False).logits[0, -1]
            best = torch.topk(logits, 2).values
            lead = min(lead, float(best[0] - best[1]))
            tokens.append(int(logits.argmax()))
    return states, whole.logits[0].numpy(), tokens[1:], lead


def main() -> None:
    for seed in range(500):
        model, rng = random_bart(seed), np.random.default_rng(seed)
        texts = [rng.integers(4, 48, n).tolist() for n in TEXTS]
        given = [START, *rng.integers(4, 48, BEGINNING - 1).tolist()]
        found = [answer(model, text, given, NEW) for text in texts]
        greedy = [tokens for _, _, tokens, _ in found]
        if min(lead for *_, lead in found) < LEAD or len({t for x in greedy for t in x}) < DISTINCT:
            continue
        weights = {name: x.detach().numpy() for name, x in model.named_parameters()}
        np.savez_compressed(
            OUT,
            lengths=np.array(TEXTS, np.int32),
            texts=np.array(sum(texts, []), np.int32),
            given=np.array(given, np.int32),
            states=np.concatenate([states for states, *_ in found]),  # (Σ lengths, d)
            logits=np.stack([logits for _, logits, *_ in found]),  # (texts, BEGINNING, V)
            greedy=np.array(greedy, np.int32),  # (texts, NEW)
            **weights,
        )
        rms = float(np.sqrt(np.mean([np.mean(logits**2) for _, logits, *_ in found])))
        print(f"seed {seed}  logits rms {rms:.2f}  {OUT.stat().st_size:,} bytes")
        return
    raise SystemExit("no seed gives clear winners")


if __name__ == "__main__":
    main()
