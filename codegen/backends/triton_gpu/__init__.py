"""The Triton backend: kernels that copy tiles, a program a block, and the code around them."""
