"""Where the warden's interpreter starts: `python -I -S boot.py warden FD` or, inside bubblewrap, `boot.py box`.

The packages above this one are entered without running their `__init__`, which would load the trainer's side.
"""

import sys
from os.path import abspath, dirname

_SANDBOX = dirname(dirname(abspath(__file__)))


def _enter_packages() -> None:
    for name, folder in (("springtide", dirname(_SANDBOX)), ("springtide.sandbox", _SANDBOX)):
        package = type(sys)(name)
        package.__path__ = [folder]
        sys.modules[name] = package


def main() -> None:
    _enter_packages()
    if sys.argv[1] == "box":
        from springtide.sandbox.warden.bubblewrap import be_box

        be_box()
    else:
        from springtide.sandbox.warden.warden import Warden

        Warden(control=int(sys.argv[2]), boot=abspath(__file__)).work()


if __name__ == "__main__":
    main()
