"""The Triton backend: kernels that copy tiles, one program a block, and the code around them."""
