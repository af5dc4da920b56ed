"""`python -m fairlead`: the command, where its script is not on the path."""

from fairlead.cli import main

if __name__ == "__main__":
    main(prog_name="fairlead")
