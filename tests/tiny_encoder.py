"""A pretrained encoder that takes no download: a BERT of random weights over a few words."""

from collections.abc import Sequence
from pathlib import Path


def save_encoder(folder: Path, words: Sequence[str]) -> Path:
    """Save it as the hub has encoders."""
    import tokenizers
    import torch
    import transformers

    known = ["[PAD]", "[UNK]", *sorted(set(words))]
    vocabulary = {word: number for number, word in enumerate(known)}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="[PAD]", unk_token="[UNK]"
    )
    config = transformers.BertConfig(
        vocab_size=len(known),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
