"""How a provider says that it does not work here."""

from fairlead.errors import FairleadError


class RefusedError(FairleadError):
    """This machine does not have what a provider reads; the message says what, as half a sentence."""
