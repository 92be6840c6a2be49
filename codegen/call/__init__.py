"""One call: takes an array or a DTensor, returns it resharded by a module emitted for it."""
