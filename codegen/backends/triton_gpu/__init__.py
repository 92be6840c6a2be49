"""The Triton backend: kernels that copy tiles, one program per block, and their host code."""
