"""What is sent: prompts from a dataset, a corpus, random token ids or a synthesis, with shared prefixes."""
