"""`sw.reshard` and `sw.sync`: move arrays, DTensors or whole models in one call."""
