"""Modules of matmuls in JAX: their steps, products and loops; plain JAX and Pallas use them."""
