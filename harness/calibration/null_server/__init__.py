"""A server that answers at times known in advance, against which the client is measured."""
