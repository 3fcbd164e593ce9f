"""What the checks of a client share: the addresses of the server and one line per check."""

import json
import os
import sys

SERVER = json.loads(os.environ["DORIS_SANDBOX"])
USER = SERVER["user"]
PASSWORD = os.environ["DORIS_PASSWORD"]
_done = 0


def address(name):
    """Host and port of one server of the sandbox."""
    host, port = SERVER[name].rsplit(":", 1)
    return host, int(port)


def check(section, what, got, expected):
    """One fact of the reference: `section` says where it stands."""
    global _done
    if got != expected:
        print(f"FAILED  {section:<5} {what}\n  expected {expected!r}\n  got      {got!r}", file=sys.stderr)
        sys.exit(1)
    _done += 1
    print(f"ok {_done:2}  {section:<5} {what}")


def contains(section, what, got, part):
    """A text has `part` in it."""
    check(section, what, part if part in str(got) else got, part)


def refused(section, what, part, error, call, *arguments, **named):
    """`call` raises `error` with `part` in its text; the error comes back."""
    try:
        result = call(*arguments, **named)
    except error as refusal:
        contains(section, what, refusal, part)
        return refusal
    check(section, what, f"no error but {result!r}", part)


def finish(name):
    print(f"{name}: {_done} checks passed")
