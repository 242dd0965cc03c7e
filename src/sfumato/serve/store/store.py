"""Everything that the cloud keeps, in one object over one set of connections."""

from sfumato.serve.store.classifiers import Classifiers
from sfumato.serve.store.keys import Keys
from sfumato.serve.store.search import Search


class Store(Keys, Classifiers, Search):
    """Everything the cloud keeps: its keys, its classifiers, and the search among them.

    State: connections to the database, which threads share; keys that were asked for within a second, and
    requests that were drawn for them, see `take`.

    Any number of threads and processes may hold the same store, and each sees at once what another has
    enrolled. A database that went away is asked again by the next call: after StoreError nothing needs to be
    opened anew.

    Methods raise StoreError, with the cure, where the database cannot be used; and NotFoundError for what the
    tenant does not have, be it that nobody has it or that another tenant does.
    """

    # Its parts are its parents, against the habit of this house: each is whole by itself, they share one
    # Database, and a method that passes on to a part would stand beside each of theirs.
