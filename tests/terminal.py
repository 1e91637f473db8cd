"""A stream that is a terminal to those who ask."""

import io


class Terminal(io.StringIO):
    def isatty(self):
        return True
