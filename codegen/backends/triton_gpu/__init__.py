"""The Triton backend: kernels that copy tiles, with one program per block, and their host code."""
