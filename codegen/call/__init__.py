"""One call: an array or a DTensor in, the same resharded out, by a module emitted for it."""
