"""The start of the command. Until a command runs (masu.help), Ctrl-C ends it as it ends any program: imports
take half a second, and an exception in the middle of them would be shown."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from masu.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
