"""From a string to ids: tokenizer, vocabulary, pretrained vectors."""
