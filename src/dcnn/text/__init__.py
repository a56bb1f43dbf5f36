"""String to ids: tokenizers, subwords, vocabulary, pretrained vectors."""
