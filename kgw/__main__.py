"""`python -m kgw`, and what the `kgw` command runs."""

import gc

START_GARBAGE_THRESHOLD = 50_000


def run() -> None:
    """Run the command line."""
    # Modules are many objects and no garbage: looking for it was a tenth of a start. The server
    # sets what suits it once it answers.
    gc.set_threshold(START_GARBAGE_THRESHOLD)
    from kgw.cli.main import main

    main(prog_name="kgw")


if __name__ == "__main__":
    run()
