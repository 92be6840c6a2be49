"""The parts of matmul modules that plain JAX and Pallas share: steps, products, and loops."""
