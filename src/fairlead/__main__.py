"""Makes `python -m fairlead` the same as `fairlead`."""

from fairlead.cli import main

if __name__ == "__main__":  # worker processes import this module too
    main()
