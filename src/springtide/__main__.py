"""`python -m springtide` is `springtide`."""

from springtide.cli.main import main

if __name__ == "__main__":
    main()
