"""Target shards with terms that have no value."""


def with_empty(move, tensor):
    """Extend a tensor of terms by its missing terms, which have the empty value."""
    hidden, shape = move.exchange.hidden, [*tensor.shape]
    new = slice(len(hidden) - move.exchange.new, len(hidden))
    shape[new] = hidden[new]
    whole = tensor.new_full(shape, move.empty_value)
    whole[tuple(map(slice, tensor.shape))] = tensor
    return whole
