"""`python -m shardwright` is the command `shardwright`."""

from shardwright.codegen.cli import main

if __name__ == "__main__":
    main()
