"""Laws of lengths in tokens: families with parameters, samples of a file, and how both are spelt."""
