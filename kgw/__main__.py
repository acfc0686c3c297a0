"""`python -m kgw`: the same as the `kgw` command."""

from kgw.cli.main import main

if __name__ == "__main__":
    main(prog_name="kgw")
