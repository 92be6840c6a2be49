"""Plan matmuls: the split of the product over devices, the moves before and after, and the cost."""
